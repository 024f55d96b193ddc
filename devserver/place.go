package devserver

import "os"

// bases are the directories in which folders of ours may be.
func bases() []string {
	return []string{os.TempDir()}
}
