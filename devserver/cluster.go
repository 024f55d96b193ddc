package devserver

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A cluster is what PostgreSQL calls its data directory, here with the password
// of its superuser: anyone on the machine can reach the port, and a superuser of
// PostgreSQL can run programs.
type cluster struct {
	dir      string // holds data, password and log
	password string
}

func (c cluster) data() string         { return filepath.Join(c.dir, "data") }
func (c cluster) passwordFile() string { return filepath.Join(c.dir, "password") }
func (c cluster) log() string          { return filepath.Join(c.dir, "log") }

// clusterFormat is part of the name of a cached cluster. Raise it when initdb is
// called differently.
const clusterFormat = 1

// newCluster returns the cluster in dir. If there is none yet, it copies the one
// an earlier start kept, or makes one and keeps a copy.
func newCluster(ctx context.Context, b binaries, dir string, as *account, cache string) (cluster, error) {
	c := cluster{dir: dir}
	if err := as.own(dir); err != nil {
		return c, err
	}
	if err := c.fill(ctx, b, as, kept(cache, b)); err != nil {
		return c, err
	}
	password, err := os.ReadFile(c.passwordFile())
	c.password = string(password)
	return c, err
}

// fill puts files into a cluster that has none, and does so in one step: data is
// there or it is not.
func (c cluster) fill(ctx context.Context, b binaries, as *account, kept string) error {
	if _, err := os.Stat(c.data()); err == nil {
		return nil
	}
	next := cluster{dir: filepath.Join(c.dir, "next")}
	if err := os.RemoveAll(next.dir); err != nil {
		return err
	}
	if err := next.make(ctx, b, as, kept); err != nil {
		return err
	}
	if err := os.Rename(next.passwordFile(), c.passwordFile()); err != nil {
		return err
	}
	if err := os.Rename(next.data(), c.data()); err != nil {
		return err
	}
	return os.Remove(next.dir)
}

// make makes the cluster from the kept one or, failing that, from nothing.
func (c cluster) make(ctx context.Context, b binaries, as *account, kept string) error {
	if _, err := os.Stat(kept); err == nil {
		return c.copy(kept, as)
	}
	if err := c.init(ctx, b, as); err != nil {
		return err
	}
	keep(c.dir, kept)
	return nil
}

func (c cluster) copy(kept string, as *account) error {
	if err := os.CopyFS(c.dir, os.DirFS(kept)); err != nil {
		return err
	}
	// PostgreSQL wants its data to be its own and nobody else's.
	return errors.Join(os.Chmod(c.data(), 0o700), as.ownAll(c.dir))
}

// init makes the cluster from nothing, which takes a second or so.
func (c cluster) init(ctx context.Context, b binaries, as *account) error {
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(c.passwordFile(), []byte(randomName()), 0o600); err != nil {
		return err
	}
	if err := as.ownAll(c.dir); err != nil {
		return err
	}
	cmd := exec.Command(b.program("initdb"), "-D", c.data(), "-U", superuser, "-A", "scram-sha-256",
		"--pwfile", c.passwordFile(), "-E", "UTF8", "--locale", "C", "--no-sync", "--no-instructions")
	out, err := run(ctx, cmd, c.dir, as)
	if err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// keep copies the cluster in dir to where later starts look for one. A later start
// makes its own if that fails.
func keep(dir, kept string) {
	if kept == "" {
		return
	}
	f, err := newFolder(filepath.Dir(kept), "")
	if err != nil {
		return
	}
	defer f.remove()
	copied := filepath.Join(f.path, "cluster")
	if os.CopyFS(copied, os.DirFS(dir)) == nil && os.Chmod(copied, 0o700) == nil {
		_ = renameUnlessThere(copied, kept)
	}
}

// discard removes the kept cluster in one step, since others may be copying it,
// and says whether there was one.
func discard(kept string) bool {
	if kept == "" {
		return false
	}
	f, err := newFolder(filepath.Dir(kept), "")
	if err != nil {
		return false
	}
	defer f.remove()
	return os.Rename(kept, filepath.Join(f.path, "cluster")) == nil
}

// kept is where clusters made by these binaries are kept, or "" for nowhere.
func kept(cache string, b binaries) string {
	if cache == "" {
		return ""
	}
	h := fnv.New32a()
	h.Write([]byte(b.dir))
	return filepath.Join(cache, fmt.Sprintf("cluster%d-%s-%08x", clusterFormat, b.version, h.Sum32()))
}

// run runs a command to its end as the account, at home in dir, and returns what
// it printed.
func run(ctx context.Context, cmd *exec.Cmd, dir string, as *account) (string, error) {
	var out strings.Builder
	cmd.Dir, cmd.Env = dir, environment(dir)
	cmd.Stdout, cmd.Stderr = &out, &out
	c, err := startChild(cmd, as)
	if err != nil {
		return "", err
	}
	select {
	case <-c.ended:
		return out.String(), c.err
	case <-ctx.Done():
		c.kill()
		return "", context.Cause(ctx)
	}
}
