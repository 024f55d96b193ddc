// Package app wires the rooms to a running service: facts from JetStream through
// windows into the store, events from the store into read models, leases,
// heartbeats and a stop that loses nothing. It is the only room that starts
// goroutines.
package app
