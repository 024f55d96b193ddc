package eventstore_test

import "flag"

// Each step talks to a real server. More of them: -rapid.checks, -rapid.steps.
func init() {
	flag.Set("rapid.checks", "25")
	flag.Set("rapid.steps", "20")
}
