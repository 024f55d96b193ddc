package devserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// An account is who PostgreSQL runs as, because it refuses to run as root. A nil
// account is ourselves.
type account struct {
	uid, gid int
}

// serverAccount returns nil, or the account that stands in for root: postgres,
// which the packages of most systems create, else nobody.
func serverAccount() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			return parseAccount(u)
		}
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is neither a user postgres nor a user nobody to run it as")
}

func parseAccount(u *user.User) (*account, error) {
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", u.Username, err)
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", u.Username, err)
	}
	return &account{uid, gid}, nil
}

// own gives the account dir.
func (a *account) own(dir string) error {
	if a == nil {
		return nil
	}
	return os.Lchown(dir, a.uid, a.gid)
}

// ownAll gives the account dir and everything in it.
func (a *account) ownAll(dir string) error {
	if a == nil {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, a.uid, a.gid)
	})
}

// reaches says whether the account may pass through dir, which everybody may if
// it and all directories above it are open to others. A root user's home and
// temporary directory often are not.
func (a *account) reaches(dir string) bool {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil || a == nil {
		return err == nil
	}
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || info.Mode()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}
