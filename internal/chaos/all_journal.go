package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"

	"github.com/weir-es/weir"
)

// promise is one line of a journal: what a process was told about its messages.
type promise struct {
	// What was said: "published" and "appended" are acknowledged, "refused" was in
	// conflict and can never be stored.
	What string    `json:"what"`
	IDs  []weir.ID `json:"ids"`
}

// journal is a file to which a process writes what it was told, line by line, before
// it goes on: it is there however the process ends.
type journal struct {
	mu   sync.Mutex
	file *os.File
}

func openJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return &journal{file: f}, err
}

func (j *journal) note(what string, ids ...weir.ID) error {
	line, err := json.Marshal(promise{what, ids})
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	_, err = j.file.Write(append(line, '\n'))
	return err
}

// readJournals are the promises in all journals of a folder, by what was said. A line
// that a death cut short was never heard by anybody.
func readJournals(dir string) (map[string][]weir.ID, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.journal"))
	all := map[string][]weir.ID{}
	for _, name := range files {
		if err := readJournal(name, all); err != nil {
			return nil, err
		}
	}
	return all, err
}

func readJournal(name string, all map[string][]weir.ID) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var p promise
		if json.Unmarshal(lines.Bytes(), &p) == nil {
			all[p.What] = append(all[p.What], p.IDs...)
		}
	}
	return lines.Err()
}
