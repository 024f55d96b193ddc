package ops

import (
	"cmp"
	"context"
	"runtime"
	"runtime/debug"
)

// Build says which program this is.
type Build struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Go      string `json:"go"`
}

type versionCommand struct{}

func (*versionCommand) run(_ context.Context, s *session) error {
	return s.out.print(Build{s.Name, cmp.Or(s.Version, buildVersion()), runtime.Version()})
}

// buildVersion is what the build knows: the version of a module that was
// installed, or the commit.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return cmp.Or(info.Main.Version, "unknown")
}
