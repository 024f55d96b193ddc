// Package devserver starts a throw-away NATS and a throw-away PostgreSQL in one
// call, for examples, tests and a newcomer's first five minutes.
//
// NATS runs in this process, with JetStream. PostgreSQL runs as a child process,
// from the binaries that are installed here or, where there are none and the
// network allows, from downloaded ones. Both listen on the loopback address
// only. Close ends them and removes every file. If Close is never reached,
// PostgreSQL ends with the process all the same, and the next start removes the
// files.
//
// Nothing here is meant for production, and nothing here knows what the servers
// are used for: no streams, no tables, no other package of Weir.
package devserver
