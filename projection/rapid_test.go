package projection_test

import "flag"

// Each check talks to a real server. More of them: -rapid.checks.
func init() {
	flag.Set("rapid.checks", "12")
	flag.Set("rapid.steps", "15")
}
