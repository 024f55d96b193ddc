package projection_test

import "flag"

// Each step talks to a real server. More of them: -rapid.checks, -rapid.steps.
func init() {
	flag.Set("rapid.checks", "12")
	flag.Set("rapid.steps", "15")
}
