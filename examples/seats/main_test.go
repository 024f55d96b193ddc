package main

import (
	"os"
	"strings"
	"testing"
)

// TestReadmeShowsThisProgram so that what a newcomer copies is what runs.
func TestReadmeShowsThisProgram(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	code := string(program)
	code = code[strings.Index(code, "package main"):]
	if !strings.Contains(string(readme), code) {
		t.Error("README.md shows another program than examples/seats/main.go")
	}
}

func TestSeats(t *testing.T) {
	if err := run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func Example() {
	main()
	// Output: seat A1: Ben, after 3 changes
}
