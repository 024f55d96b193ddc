//go:build !windows

package devserver

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var errNoNetwork = errors.New("no network")

// machine describes what is installed in a directory that stands for a machine.
type machine struct {
	t    *testing.T
	root string
}

// install puts programs into a directory, which say that they are of a version.
func (m machine) install(dir, version string, programs ...string) {
	for _, name := range programs {
		m.script(filepath.Join(dir, name), fmt.Sprintf("echo 'postgres (PostgreSQL) %s (Debian)'", version))
	}
}

func (m machine) script(name, text string) {
	path := filepath.Join(m.root, name)
	must(os.MkdirAll(filepath.Dir(path), 0o755))
	must(os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755))
}

// finder finds what is on the machine, and has no network.
func (m machine) finder() finder {
	return finder{
		path:     filepath.Join(m.root, "bin"),
		places:   []string{filepath.Join(m.root, "lib", "*", "bin")},
		reaches:  func(dir string) bool { return !strings.Contains(dir, "unreachable") },
		download: func(context.Context) (string, error) { return "", errNoNetwork },
	}
}

func TestBinariesAreFound(t *testing.T) {
	for _, c := range []struct {
		name    string
		install func(machine)
		want    string // directory and version, or what an error says
	}{
		{"in PATH", func(m machine) {
			m.install("bin", "16.2", "postgres", "initdb")
			m.install("lib/17/bin", "17.1", "postgres", "initdb")
		}, "bin 16.2"},
		{"behind a link in PATH", func(m machine) {
			m.install("opt/bin", "16.2", "postgres", "initdb")
			must(os.MkdirAll(filepath.Join(m.root, "bin"), 0o755))
			must(os.Symlink("../opt/bin/postgres", filepath.Join(m.root, "bin", "postgres")))
		}, "opt/bin 16.2"},
		{"by pg_config", func(m machine) {
			m.install("opt/bin", "16.2", "postgres", "initdb")
			m.script("bin/pg_config", "echo "+filepath.Join(m.root, "opt/bin"))
		}, "opt/bin 16.2"},
		{"the highest version", func(m machine) {
			m.install("lib/9/bin", "9.6.24", "postgres", "initdb")
			m.install("lib/15/bin", "15.9", "postgres", "initdb")
			m.install("lib/18/bin", "18beta1", "postgres", "initdb")
		}, "lib/18/bin 18beta1"},
		{"not without initdb", func(m machine) {
			m.install("lib/18/bin", "18.1", "postgres")
			m.install("lib/15/bin", "15.9", "postgres", "initdb")
		}, "lib/15/bin 15.9"},
		{"not those that root's account cannot reach", func(m machine) {
			m.install("lib/unreachable18/bin", "18.1", "postgres", "initdb")
			m.install("lib/15/bin", "15.9", "postgres", "initdb")
		}, "lib/15/bin 15.9"},
		{"none", func(machine) {}, "no network"},
		{"only an old one", func(m machine) { m.install("lib/13/bin", "13.4", "postgres", "initdb") }, "version 13.4 is older than 15"},
		{"only one that does not run", func(m machine) {
			m.script("lib/17/bin/postgres", "exit 3")
			m.script("lib/17/bin/initdb", "exit 3")
		}, "exit status 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := machine{t, t.TempDir()}
			c.install(m)
			b, err := m.finder().find(t.Context())
			if err != nil {
				wantMissing(t, err, c.want)
				return
			}
			dir, _ := filepath.Rel(m.root, b.dir)
			if got := dir + " " + b.version; got != c.want {
				t.Errorf("found %s, want %s", got, c.want)
			}
		})
	}
}

// wantMissing expects the error of a machine without PostgreSQL that says part.
func wantMissing(t *testing.T, err error, part string) {
	t.Helper()
	var missing *NoPostgresError
	if !errors.As(err, &missing) || !errors.Is(err, errNoNetwork) {
		t.Fatalf("got %v, want a NoPostgresError for lack of a network", err)
	}
	for _, part := range []string{part, "Install it:", "WEIR_POSTGRES="} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

func TestHowToInstall(t *testing.T) {
	for _, c := range []struct{ goos, release, want string }{
		{"darwin", "", "brew install postgresql@17"},
		{"windows", "", "winget install PostgreSQL.PostgreSQL.17"},
		{"linux", "NAME=Debian\nID=debian\n", "apt-get install postgresql"},
		{"linux", "ID=ubuntu\nID_LIKE=debian\nHOME_URL=x\n", "apt-get install postgresql"},
		{"linux", "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", "dnf install postgresql-server"},
		{"linux", "ID=alpine\n", "apk add postgresql17"},
		{"linux", "ID=gentoo\nPRETTY_NAME=no debian\n", "install the package postgresql of this system, with its server"},
		{"freebsd", "", "install the package postgresql of this system, with its server"},
	} {
		if got := howToInstall(c.goos, c.release); got != c.want {
			t.Errorf("%s %q: got %q, want %q", c.goos, c.release, got, c.want)
		}
	}
}

func TestBinariesAreDownloadedOnce(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", filepath.Join(publicDir(t), "cache"))
	requests := serveArchive(t)
	f := machine{t, t.TempDir()}.finder()
	f.download = func(ctx context.Context) (string, error) { return download(ctx, nil) }
	for range 2 {
		b, err := f.find(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if b.version != "17.5" {
			t.Errorf("downloaded %q, want 17.5", b.version)
		}
	}
	if *requests != 2 {
		t.Errorf("%d requests, want 2: one for the archive, one for its checksum", *requests)
	}
}

func TestTwoDownloadsAtOnceAreOne(t *testing.T) {
	serveArchive(t)
	cache := t.TempDir()
	kept := filepath.Join(cache, "kept")
	for range 2 { // the second finds the first there when it is done
		if err := fetch(cache, kept); err != nil {
			t.Error(err)
		}
	}
	if !exists(filepath.Join(kept, "bin", "initdb")) {
		t.Error("nothing was kept")
	}
}

func TestADownloadThatFailsSaysSo(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	moveRepository(t, server.URL)
	if dir, err := download(t.Context(), nil); err == nil {
		t.Errorf("downloaded %s", dir)
	}
}

// serveArchive is the repository of downloads, with one that prints its version
// and does nothing else. It counts requests.
func serveArchive(t *testing.T) (requests *int) {
	archive, err := os.ReadFile(filepath.Join("testdata", "postgres.txz"))
	must(err)
	var jar bytes.Buffer
	z := zip.NewWriter(&jar)
	entry, err := z.Create("postgres.txz")
	must(err)
	_, err = entry.Write(archive)
	must(err)
	must(z.Close())
	sum := sha256.Sum256(jar.Bytes())
	requests = new(int)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*requests++
		if strings.HasSuffix(r.URL.Path, ".sha256") {
			fmt.Fprint(w, hex.EncodeToString(sum[:]))
			return
		}
		w.Write(jar.Bytes())
	}))
	t.Cleanup(func() { http.DefaultClient.CloseIdleConnections(); server.Close() })
	moveRepository(t, server.URL)
	return requests
}

func moveRepository(t *testing.T, url string) {
	old := repository
	repository = url
	t.Cleanup(func() { repository = old })
}
