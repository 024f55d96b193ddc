// Package weir is the vocabulary of the framework: what a message, an event, a
// stream, a position and an id are, how Go values become messages and how ids
// keep their order. It knows nothing of NATS or PostgreSQL and starts nothing;
// the rooms that do (transport, eventstore, projection, app) speak in its words.
package weir
