package devserver

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// NoPostgresError says that there is no PostgreSQL to start, and what to do
// about it.
type NoPostgresError struct {
	Unfit    []error // what was found and will not do, and why
	Download error   // why none was downloaded
}

func (e *NoPostgresError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "no PostgreSQL %d or newer found on this machine, and none downloaded: %v\n", oldest, e.Download)
	for _, err := range e.Unfit {
		fmt.Fprintf(&b, "  found, but will not do: %v\n", err)
	}
	release, _ := os.ReadFile("/etc/os-release")
	fmt.Fprintf(&b, "Install it:               %s\n", howToInstall(runtime.GOOS, string(release)))
	fmt.Fprintf(&b, "or name one that runs:    WEIR_POSTGRES=postgres://user:password@host:5432/database")
	return b.String()
}

// Unwrap gives why none was downloaded.
func (e *NoPostgresError) Unwrap() error { return e.Download }

// howToInstall returns the command that installs PostgreSQL on a system, of which
// release is the file /etc/os-release.
func howToInstall(goos, release string) string {
	switch goos {
	case "darwin":
		return "brew install postgresql@17"
	case "windows":
		return "winget install PostgreSQL.PostgreSQL.17"
	}
	for _, family := range families {
		if strings.Contains(identity(release), family.id) {
			return family.command
		}
	}
	return "install the package postgresql of this system, with its server"
}

// families are the systems whose command is known, by a word in their identity.
var families = []struct{ id, command string }{
	{"debian", "apt-get install postgresql"},
	{"fedora", "dnf install postgresql-server"},
	{"rhel", "dnf install postgresql-server"},
	{"alpine", "apk add postgresql17"},
	{"arch", "pacman -S postgresql"},
	{"suse", "zypper install postgresql-server"},
	{"nixos", "nix-shell -p postgresql"},
}

// identity returns the lines of an os-release that name a system and its kin.
func identity(release string) string {
	var ids string
	for line := range strings.Lines(release) {
		if strings.HasPrefix(line, "ID=") || strings.HasPrefix(line, "ID_LIKE=") {
			ids += line
		}
	}
	return ids
}
