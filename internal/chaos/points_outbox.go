package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"slices"
	"sync"

	"github.com/weir-es/weir"
)

// outbox is a file in which a producer notes messages before it publishes them, so that
// whoever comes after it can publish again, with the same ids, what was not answered.
type outbox struct {
	mu   sync.Mutex
	file *os.File
}

// note does nothing without an outbox.
func (o *outbox) note(m weir.Message) error {
	if o == nil {
		return nil
	}
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	_, err = o.file.Write(append([]byte{'\n'}, line...)) // behind a line that a death cut short
	return err
}

func openOutbox(path string) (o *outbox, noted []weir.Message, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, err
	}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var m weir.Message
		if json.Unmarshal(lines.Bytes(), &m) == nil { // what a death cut short was never published
			noted = append(noted, m)
		}
	}
	return &outbox{file: f}, noted, lines.Err()
}

// inherit publishes what the feeder before noted and was not told about. It may be stored,
// with the broker or even in the log.
func (f *feeder) inherit(ctx context.Context) error {
	if f.Outbox == "" {
		return nil
	}
	noted, err := f.open()
	if err != nil || len(noted) == 0 {
		return err
	}
	if err := f.publisher.Publish(ctx, noted...); err != nil {
		return err
	}
	ids := make([]weir.ID, len(noted))
	for i, m := range noted {
		ids[i] = m.ID
	}
	return f.journal.note("published", ids...)
}

// open gives what is in the outbox and not in the journal.
func (f *feeder) open() (noted []weir.Message, err error) {
	if f.outbox, noted, err = openOutbox(f.Outbox); err != nil {
		return nil, err
	}
	said := map[string][]weir.ID{}
	if err := readJournal(f.Journal, said); err != nil {
		return nil, err
	}
	f.number = len(noted)
	done := map[weir.ID]bool{}
	for _, id := range said["published"] {
		done[id] = true
	}
	return slices.DeleteFunc(noted, func(m weir.Message) bool { return done[m.ID] }), nil
}
