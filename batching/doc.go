// Package batching gathers items that arrive one at a time into ordered
// batches, one open batch per key. It knows nothing of events, NATS or Postgres.
//
// Here live [Window], which says when a batch closes; [Policy], whether that is
// fixed or adapts, and [Gauge], which sees how late items come and adapts it;
// [Batch], what comes out; and [Collector], the loop between a channel and a
// function that writes. Whatever the number of keys, a Collector is one goroutine
// (the caller's) and one timer, and each item costs the same.
//
// What does not live here: what an item means, where it goes, and when it is
// acknowledged. The function that writes does that after its commit.
package batching
