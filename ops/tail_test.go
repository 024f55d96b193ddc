package ops_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/devserver"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/ops"
)

func numbered(n int) weir.Message {
	return weir.Message{Type: "t", Data: fmt.Appendf(nil, `%d`, n)}
}

func appendTo(t testing.TB, s *eventstore.Store, stream weir.StreamID, numbers ...int) {
	t.Helper()
	for _, n := range numbers {
		if _, err := s.Append(testkit.Context(t), stream, weir.AnyVersion, numbered(n)); err != nil {
			t.Fatal(err)
		}
	}
}

// following shows what a tail shows, until stop is called, which returns its error.
func following(t *testing.T, s *eventstore.Store, o ops.TailOptions) (shown chan string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(testkit.Context(t))
	shown, ended := make(chan string, 1000), make(chan error, 1)
	o.Follow = true
	go func() {
		var err error
		for row, fault := range ops.Tail(ctx, s, o) {
			if err = fault; err == nil {
				shown <- string(row.Data)
			}
		}
		ended <- err
	}()
	return shown, func() error { cancel(); return <-ended }
}

func wantShown(t *testing.T, shown chan string, numbers ...int) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for _, n := range numbers {
		select {
		case got := <-shown:
			if got != fmt.Sprint(n) {
				t.Fatalf("shown %s, want %d", got, n)
			}
		case <-deadline:
			t.Fatalf("%d is not shown", n)
		}
	}
}

// TestTailGoesOnAfterARestart of the database, soft or hard: every event once and in
// order, and its end is no error.
func TestTailGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	server, err := devserver.StartPostgres(ctx, devserver.PostgresConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	s := testkit.Store(t, eventstore.Config{URL: server.URL(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	appendTo(t, s, "a-1", 1, 2, 3)
	shown, stop := following(t, s, ops.TailOptions{Last: 2})
	wantShown(t, shown, 2, 3)
	for i, mode := range []string{"fast", "immediate"} {
		n := 10 * (i + 1)
		appendTo(t, s, "a-1", n)
		wantShown(t, shown, n)
		if err := server.Restart(ctx, mode); err != nil {
			t.Fatal(err)
		}
		appendTo(t, s, "a-1", n+1, n+2)
		wantShown(t, shown, n+1, n+2)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if len(shown) > 0 {
		t.Errorf("%d events were shown twice", len(shown))
	}
}

// TestTailGoesOnInTheMiddleOfAPage, when the database goes away between two of them.
func TestTailGoesOnInTheMiddleOfAPage(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	server, err := devserver.StartPostgres(ctx, devserver.PostgresConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	s, err := eventstore.Open(ctx, eventstore.Config{URL: server.URL(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() // without Run, no other connection takes the place of the broken one
	appendTo(t, s, "a-1", 0)
	want := 0
	for row, err := range ops.Tail(ctx, s, ops.TailOptions{Last: 1, Follow: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if string(row.Data) != fmt.Sprint(want) {
			t.Fatalf("shown %s, want %d", row.Data, want)
		}
		switch want++; want {
		case 1:
			var many []weir.Message
			for n := range 2500 {
				many = append(many, numbered(n+1))
			}
			_, err = s.Append(ctx, "a-1", weir.AnyVersion, many...)
		case 500:
			err = server.Restart(ctx, "immediate")
		case 2501:
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestTailNeverPassesAnOpenAppend, and shows each event once whatever the reader
// begins with.
func TestTailNeverPassesAnOpenAppend(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	s := testkit.Store(t, eventstore.Config{})
	all, stopAll := following(t, s, ops.TailOptions{Last: 10}) // most likely begins with an empty log
	tx, err := s.Pool().Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	if _, err := s.AppendTx(ctx, tx, eventstore.Append{Stream: "a-1", Expected: weir.NewStream, Messages: []weir.Message{numbered(1)}}); err != nil {
		t.Fatal(err)
	}
	appendTo(t, s, "b-1", 2, 3)
	early, stopEarly := following(t, s, ops.TailOptions{Last: 5})
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	appendTo(t, s, "b-1", 4)
	wantShown(t, all, 1, 2, 3, 4)
	wantShown(t, early, 1, 2, 3, 4)
	for _, stop := range []func() error{stopAll, stopEarly} {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}

// TestTailEndsWithItsReader, in the beginning and while it follows.
func TestTailEndsWithItsReader(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	appendTo(t, s, "a-1", 1, 2, 3, 4)
	var since ops.InLog
	if err := since.UnmarshalText([]byte("2")); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]ops.TailOptions{
		"last":     {Last: 3},
		"since":    {Since: since},
		"followed": {Since: since, Follow: true},
	} {
		var got []string
		for row, err := range ops.Tail(testkit.Context(t), s, o) {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if got = append(got, string(row.Data)); len(got) == 2 {
				break
			}
		}
		if !slices.Equal(got, []string{"2", "3"}) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestTailEndsWhenTheLogWentBack: what it showed is not there any more.
func TestTailEndsWhenTheLogWentBack(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	s, err := eventstore.Open(ctx, eventstore.Config{URL: testkit.Database(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	appendTo(t, s, "a-1", 1, 2, 3)
	for row, err := range ops.Tail(ctx, s, ops.TailOptions{Last: 1, Follow: true}) {
		if err != nil {
			if back := (*eventstore.WentBackError)(nil); !errors.As(err, &back) {
				t.Error(err)
			}
			return
		}
		if string(row.Data) != "3" {
			t.Fatalf("shown %s", row.Data)
		}
		if _, err := s.Pool().Exec(ctx, "select setval('weir.position', 2)"); err != nil {
			t.Fatal(err)
		}
	}
	t.Error("it ended without an error")
}
