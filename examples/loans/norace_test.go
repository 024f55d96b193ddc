//go:build !race

package main

// underRace is true where the race detector makes everything ten times slower.
const underRace = false
