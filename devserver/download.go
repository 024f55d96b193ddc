package devserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// downloaded is the version that is downloaded where there is none.
const downloaded = embedded.V17

// repository is where it is downloaded from. Tests move it.
var repository = "https://repo1.maven.org/maven2"

// download returns the binaries that an earlier call downloaded, or downloads
// them.
func download(ctx context.Context, as *account) (dir string, err error) {
	cache := cacheDir(cacheCandidates(), as.reaches)
	if cache == "" {
		return "", errors.New("no directory to keep it in: set XDG_CACHE_HOME to one that can be written to")
	}
	kept := filepath.Join(cache, fmt.Sprintf("download-%s-%s", downloaded, runtime.GOARCH))
	bin := filepath.Join(kept, "bin")
	if _, err := os.Stat(bin); err == nil {
		return bin, nil
	}
	slog.InfoContext(ctx, "no PostgreSQL on this machine, downloading one", "version", downloaded)
	done := make(chan error, 1)
	go func() { done <- fetch(cache, kept) }()
	select {
	case err := <-done:
		return bin, err
	case <-ctx.Done(): // the rest of the download is for the next start
		return "", context.Cause(ctx)
	}
}

// fetch downloads the binaries to kept, in one step for whoever looks there.
func fetch(cache, kept string) error {
	f, err := newFolder(cache, "")
	if err != nil {
		return err
	}
	defer f.remove()
	got := filepath.Join(f.path, "postgres")
	if err := extract(f.path, got); err != nil {
		return err
	}
	return renameUnlessThere(got, kept)
}

// extract downloads the archive into dir and extracts it to target. The library
// does so only on the way to starting a server, which it is kept from by a data
// directory that has a version and nothing else.
func extract(dir, target string) error {
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	major, _, _ := strings.Cut(string(downloaded), ".")
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte(major), 0o600); err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	defer removeNewLogs(logs())
	err = embedded.NewDatabase(embedded.DefaultConfig().Version(downloaded).BinaryRepositoryURL(repository).
		Port(uint32(port)).Logger(io.Discard).CachePath(dir).RuntimePath(filepath.Join(dir, "run")).
		DataPath(data).BinariesPath(target)).Start()
	if _, missing := os.Stat(filepath.Join(target, "bin", "initdb"+suffix)); missing != nil {
		return err
	}
	return nil
}

// logs are the log files that the library leaves in the temporary directory.
func logs() []string {
	found, _ := filepath.Glob(filepath.Join(os.TempDir(), "embedded_postgres_log*"))
	return found
}

func removeNewLogs(old []string) {
	for _, log := range logs() {
		if !slices.Contains(old, log) {
			os.Remove(log)
		}
	}
}

// renameUnlessThere moves a directory to its place, unless another process has
// already put one there.
func renameUnlessThere(from, to string) error {
	err := os.Rename(from, to)
	if _, there := os.Stat(to); there == nil {
		return nil
	}
	return err
}
