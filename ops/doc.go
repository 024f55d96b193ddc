// Package ops is the operator's room: every verb of the weir program as a function
// with typed options and results, and as a command, one file per verb. It holds no
// rules of its own; what a verb does is done by the rooms below.
//
// A Program is the whole command line, which cmd/weir runs, and which an
// application may carry too.
package ops
