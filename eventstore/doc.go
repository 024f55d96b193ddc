// Package eventstore keeps events in PostgreSQL: streams and their events,
// appends with versions, the horizon up to which the log is complete, reading,
// checkpoints, leases and their fence, snapshots, import. It knows nothing of NATS
// and is the only authority on what happened. It starts goroutines only while
// appends wait to be written and while an import runs; nothing lives on by itself.
//
// Every statement is a file under sql/, named like the function that runs it.
package eventstore
