// Package xes reads and writes event logs in XES (IEEE 1849), trace by trace, in
// the memory of one trace. It knows what a log says, which case did what and
// when, and nothing of messages, streams or servers.
//
// Extensions, globals, classifiers and the attributes of the log itself are
// skipped. Of a trace it keeps the name and the requested amount, of an event the
// activity, its transition, its time and who did it.
package xes
