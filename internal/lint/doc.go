// Package lint is where the tests live that keep the house in order: which room
// may import which, which guests each of them brings, that no test sleeps, that
// docker-compose.yml says what the documentation says. Each check is a function
// over data, so that its own test can show it a house that is out of order.
//
// It has no code outside its tests and imports no room.
package lint
