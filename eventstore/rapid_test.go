package eventstore_test

import "flag"

// Each check talks to a real server. More of them: -rapid.checks.
func init() { flag.Set("rapid.checks", "30") }
