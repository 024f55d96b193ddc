// Package eventstore keeps events in PostgreSQL: streams and their events,
// appends with versions, the horizon up to which the log is complete, reading,
// checkpoints, leases and their fence. It knows nothing of NATS, starts no
// goroutine, and is the only authority on what happened.
//
// Every statement is a file under sql/, named like the function that runs it.
package eventstore
