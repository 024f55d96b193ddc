package app_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-es/weir/devserver"
	"github.com/weir-es/weir/internal/testkit"
)

// archive is a broker whose files can be copied and put back.
type archive struct {
	*devserver.NATS
	files, copied string
}

func newArchive(t *testing.T) *archive {
	t.Helper()
	dir := t.TempDir()
	server, err := devserver.StartNATS(testkit.Context(t), devserver.NATSConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return &archive{server, filepath.Join(dir, "nats"), t.TempDir()}
}

// offline stops the server, does something to its files and starts it again.
func (a *archive) offline(t *testing.T, act func() error) {
	t.Helper()
	a.Stop()
	if err := act(); err != nil {
		t.Fatal(err)
	}
	if err := a.Resume(testkit.Context(t)); err != nil {
		t.Fatal(err)
	}
}

func (a *archive) keep() error { return os.CopyFS(a.copied, os.DirFS(a.files)) }

// putBack puts the copies of those files back that match a pattern.
func (a *archive) putBack(pattern string) error {
	places, err := filepath.Glob(filepath.Join(a.copied, pattern))
	for _, place := range places {
		name, _ := filepath.Rel(a.copied, place)
		if err := os.RemoveAll(filepath.Join(a.files, name)); err != nil {
			return err
		}
		if err := os.CopyFS(filepath.Join(a.files, name), os.DirFS(place)); err != nil {
			return err
		}
	}
	return err
}

// restores are what of its files goes back: all, or the messages alone, so that the
// consumers know of later ones.
var restores = map[string]string{"whole": "jetstream", "messages": "jetstream/*/streams/*/msgs"}

// TestP2_BrokerWentBack to an earlier copy of its files: it is noticed, processing goes on,
// what is stored already is not stored again, and nothing is lost that is sent
// afterwards. (nats-server#6611, nats-server#6124, nats-server#5412: a consumer that was
// ahead of its stream gave out nothing; nats-server#7564: acknowledged and not on disk)
func TestP2_BrokerWentBack(t *testing.T) {
	for name, pattern := range restores {
		for _, quiet := range []bool{true, false} {
			when := map[bool]string{true: " at rest", false: " under load"}[quiet]
			t.Run(name+when, func(t *testing.T) {
				t.Parallel()
				broker := newArchive(t)
				config := service(t)
				said := &logs{}
				config.Name, config.NATS, config.Inbox, config.Logger = "went_back", broker.URL(), soon, said.logger()
				a := open(t, config)
				begin(t, a)
				l := publishAlways(t, a, 4, 20)
				l.awaitAcked(t, 300, time.Minute)
				broker.offline(t, broker.keep)
				kept := int64(l.acked())
				l.awaitAcked(t, 1000, time.Minute)
				testkit.Await(t, time.Minute, "more is stored than the copy knows of", func() bool { return a.Stats().Stored > kept+500 })
				if quiet {
					l.finish()
					settle(t, a, time.Minute)
				}
				var back time.Time // when the broker had stopped: what it answered before may be lost
				broker.offline(t, func() error { back = time.Now(); return broker.putBack(pattern) })
				if quiet {
					testkit.Await(t, time.Minute, "it is noticed", func() bool {
						return said.has("went back to an earlier state") || said.has("consumer is ahead of its stream")
					})
					l.begin(t)
				}
				stored := a.Stats().Stored
				l.awaitAcked(t, 500, time.Minute)
				testkit.Await(t, time.Minute, "more is stored", func() bool { return a.Stats().Stored > stored+300 })
				t.Logf("more is stored %s after the broker went back", time.Since(back).Round(time.Millisecond))
				l.finish()
				settle(t, a, time.Minute)
				lost := l.check(t, a, func(f *sentFact) bool { return !quiet && f.sent.Before(back) })
				t.Logf("%d stored, %d came again, %d lost that were not stored yet; noticed: back %t, ahead %t, unseen %t", a.Stats().Stored, a.Stats().Duplicates, lost,
					said.has("went back to an earlier state"), said.has("consumer is ahead of its stream"), said.has("was replaced unseen"))
			})
		}
	}
}

// TestP2_BrokerWentBackUnseen while no instance was running: what is published until
// one begins has the sequences of messages that were acknowledged before. All of it is
// stored. (nats-server#6611)
func TestP2_BrokerWentBackUnseen(t *testing.T) {
	for name, pattern := range restores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broker := newArchive(t)
			config := service(t)
			config.Name, config.NATS, config.Inbox = "went_back", broker.URL(), soon
			producer, first := open(t, config), open(t, config)
			stop := begin(t, first)
			l := publishAlways(t, producer, 4, 20)
			l.awaitAcked(t, 300, time.Minute)
			broker.offline(t, broker.keep)
			kept := l.acked()
			l.awaitAcked(t, 500, time.Minute)
			l.finish()
			settle(t, first, time.Minute)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			again := l.acked() - kept // sequences to be given out a second time
			broker.offline(t, func() error { return broker.putBack(pattern) })
			l.begin(t)
			l.awaitAcked(t, again+500, time.Minute)
			l.finish()
			next := open(t, config)
			begin(t, next)
			settle(t, next, time.Minute)
			l.check(t, next, nil)
			t.Logf("%d stored, %d came again", next.Stats().Stored, next.Stats().Duplicates)
		})
	}
}
