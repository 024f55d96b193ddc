//go:build !windows

package devserver

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// The tests put every file into rooms of their own, one in memory and one on the
// disk, and look into them in the end. Children of the tests inherit the rooms.
const memoryVariable = "WEIR_DEVSERVER_TEST_MEMORY"

func TestMain(m *testing.M) {
	if m := os.Getenv(memoryVariable); m != "" {
		memory = m
	}
	if scene := os.Getenv(sceneVariable); scene != "" {
		os.Exit(play(scene))
	}
	os.Exit(runInRooms(m))
}

func runInRooms(m *testing.M) int {
	rooms, closeRooms := openRooms()
	defer closeRooms()
	code := m.Run()
	for _, room := range rooms {
		left, err := os.ReadDir(room)
		if err != nil || len(left) > 0 {
			fmt.Fprintf(os.Stderr, "the tests left %v in %s (%v)\n", left, room, err)
			code = 1
		}
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// openRooms returns the directories that must be empty in the end.
func openRooms() (rooms []string, closeRooms func()) {
	disk := openRoom("")
	os.Setenv("TMPDIR", mkdir(disk, "tmp"))
	os.Setenv("XDG_CACHE_HOME", mkdir(disk, "cache"))
	os.Unsetenv("WEIR_POSTGRES")
	os.Unsetenv("WEIR_NATS")
	rooms = []string{os.Getenv("TMPDIR")}
	if _, err := os.Stat(memory); err != nil {
		return rooms, func() { os.RemoveAll(disk) }
	}
	fast := openRoom(memory)
	memory = mkdir(fast, "memory")
	os.Setenv(memoryVariable, memory)
	return append(rooms, memory), func() { os.RemoveAll(disk); os.RemoveAll(fast) }
}

func openRoom(base string) string {
	room, err := os.MkdirTemp(base, "weir-devserver-test.")
	must(err)
	must(os.Chmod(room, 0o755))
	return room
}

// mkdir makes a directory that anyone may use, as /tmp is.
func mkdir(dir, name string) string {
	path := filepath.Join(dir, name)
	must(os.Mkdir(path, 0o777))
	must(os.Chmod(path, 0o777|os.ModeSticky))
	return path
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
