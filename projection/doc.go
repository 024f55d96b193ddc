// Package projection folds events into read models: rows of a View, or whatever
// a Handler writes with its own SQL, each event once and in order, in the
// transaction of the checkpoint. It knows nothing of NATS and starts nothing: a
// Worker's Run is called by whoever owns the shards.
package projection
