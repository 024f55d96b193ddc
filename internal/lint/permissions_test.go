package lint

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/transport"
)

// restricted is a server with the users of deploy/nats-permissions.conf, and the
// address at which one of them logs in.
func restricted(t *testing.T) (url func(user string) string) {
	t.Helper()
	for _, user := range []string{"PROVISION", "PRODUCER", "APP", "SUBSCRIBER"} {
		t.Setenv("WEIR_"+user+"_PASSWORD", "of-"+strings.ToLower(user))
	}
	options := natsOptions(t, filepath.Join(top, "deploy/nats-permissions.conf"))
	options.Host, options.Port, options.NoSigs, options.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	options.JetStream, options.StoreDir = true, t.TempDir()
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server is not ready")
	}
	return func(user string) string {
		return fmt.Sprintf("nats://%s:of-%s@%s", user, user, s.Addr())
	}
}

// as connects as one of the users does.
func as(ctx context.Context, t *testing.T, url func(string) string, user string) *transport.Conn {
	t.Helper()
	c, err := transport.Connect(ctx, transport.Config{URL: url(user), InboxPrefix: "_INBOX_" + user, Shards: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Each role does its work with what it may do.
func TestPermissionsAreEnough(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	url := restricted(t)
	check := func(did string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", did, err)
		}
	}

	provision := as(ctx, t, url, "provision")
	check("provision", provision.Declare(ctx))
	_, err := provision.DeclareLog(ctx)
	check("provision the log stream", err)
	producer, app := as(ctx, t, url, "producer"), as(ctx, t, url, "app")
	check("the app declares what is there", app.Declare(ctx))

	fact := weir.Message{ID: weir.NewID(), Stream: "seat-A1", Type: "seat.held", Data: []byte("{}")}
	check("the producer publishes", producer.Publisher().Publish(ctx, fact))
	check("the app publishes", app.Publisher().Publish(ctx, fact)) // a duplicate

	receiving, stop := context.WithCancel(ctx)
	received := make(chan error, 1)
	check("the app receives", app.Receive(receiving, fact.Stream.Shard(4), func(d *transport.Delivery) {
		received <- errors.Join(d.Err, d.Ack())
		stop()
	}))
	check("the app acknowledges", <-received)
	awaitDone(ctx, t, app)
	_, err = app.Purge(ctx, 0)
	check("the app purges", err)
	relayAndSubscribe(ctx, t, url, app, fact)
}

// relayAndSubscribe: the app publishes what it has committed and another service handles
// it, also where it wants some categories only.
func relayAndSubscribe(ctx context.Context, t *testing.T, url func(string) string, app *transport.Conn, fact weir.Message) {
	t.Helper()
	subscriber := as(ctx, t, url, "subscriber")
	if created, err := app.DeclareLog(ctx); created || err != nil {
		t.Fatalf("the app finds the log stream as it was provisioned: %t, %v", !created, err)
	}
	for version, categories := range [][]string{nil, {"seat"}} {
		event := weir.Event{Message: fact, Version: weir.Version(version + 1), Position: weir.Position(version + 1), Recorded: time.Now()}
		event.ID = weir.NewID()
		if err := app.PublishEvents(ctx, event); err != nil {
			t.Fatalf("the app relays: %v", err)
		}
		handling, stop := context.WithCancel(ctx)
		handled := make(chan error, 1)
		err := subscriber.Subscribe(handling, transport.Subscription{Name: "books_billing", Categories: categories}, func(_ context.Context, d *transport.Delivery) error {
			if d.Event.ID != event.ID {
				return nil // its acknowledgement was on its way when the subscription began again
			}
			handled <- d.Err
			stop()
			return nil
		})
		stop()
		if err != nil || len(handled) == 0 || <-handled != nil {
			t.Fatalf("the subscriber handles an event, with categories %v: %v", categories, err)
		}
		awaitAcked(ctx, t, url, uint64(version+1))
	}
}

// awaitAcked polls the broker until it has counted the acknowledgements of the subscriber.
func awaitAcked(ctx context.Context, t *testing.T, url func(string) string, n uint64) {
	t.Helper()
	nc, err := nats.Connect(url("subscriber"), nats.CustomInboxPrefix("_INBOX_subscriber"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		consumer, err := js.Consumer(ctx, "WEIR_WEIR_LOG", "books_billing")
		if err == nil && consumer.CachedInfo().AckFloor.Stream == n {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the acknowledgement of the subscriber never arrived: %v", err)
		}
	}
}

// awaitDone polls the broker until it has counted every acknowledgement.
func awaitDone(ctx context.Context, t *testing.T, app *transport.Conn) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		backlog, err := app.Backlog(ctx)
		if err == nil && backlog.IsDone() {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the acknowledgement never arrived: %+v, %v", backlog, err)
		}
	}
}

// No role can do what is not its work.
func TestPermissionsAreTheLeast(t *testing.T) {
	url := restricted(t)
	for user, subjects := range map[string][]string{
		"provision": {
			"weir.weir.ingest.0.seat.A1", "$JS.API.STREAM.DELETE.WEIR_WEIR_INGEST", "$JS.API.STREAM.PURGE.WEIR_WEIR_INGEST",
			"weir.weir.log.0.seat.A1", "$JS.API.STREAM.DELETE.WEIR_WEIR_LOG", "$JS.API.CONSUMER.CREATE.WEIR_WEIR_LOG.x",
			"$JS.API.STREAM.CREATE.OTHER", "$JS.API.CONSUMER.DELETE.WEIR_WEIR_INGEST.shard-0",
		},
		"producer": {
			"weir.other.ingest.0.seat.A1", "weir.weir.log.0.seat.A1", "$JS.API.STREAM.INFO.WEIR_WEIR_LOG", "$JS.API.STREAM.INFO.WEIR_WEIR_INGEST", "$JS.API.STREAM.MSG.GET.WEIR_WEIR_INGEST",
			"$JS.API.CONSUMER.MSG.NEXT.WEIR_WEIR_INGEST.shard-0", "$JS.ACK.WEIR_WEIR_INGEST.shard-0.1.1.1.1.0",
		},
		"app": {
			"weir.other.ingest.0.seat.A1", "$JS.API.STREAM.DELETE.WEIR_WEIR_INGEST", "$JS.API.STREAM.UPDATE.WEIR_WEIR_INGEST",
			"$JS.API.CONSUMER.CREATE.WEIR_WEIR_INGEST.x", "$JS.API.CONSUMER.DELETE.WEIR_WEIR_INGEST.shard-0",
			"$JS.ACK.OTHER.shard-0.1.1.1.1.0",
			"weir.other.log.0.seat.A1", "$JS.API.STREAM.CREATE.WEIR_WEIR_LOG", "$JS.API.STREAM.UPDATE.WEIR_WEIR_LOG",
			"$JS.API.STREAM.DELETE.WEIR_WEIR_LOG", "$JS.API.STREAM.PURGE.WEIR_WEIR_LOG", "$JS.API.CONSUMER.CREATE.WEIR_WEIR_LOG.x",
		},
		"subscriber": {
			"weir.weir.ingest.0.seat.A1", "weir.weir.log.0.seat.A1", "$JS.API.STREAM.INFO.WEIR_WEIR_INGEST",
			"$JS.API.STREAM.CREATE.WEIR_WEIR_LOG", "$JS.API.STREAM.UPDATE.WEIR_WEIR_LOG", "$JS.API.STREAM.DELETE.WEIR_WEIR_LOG",
			"$JS.API.STREAM.PURGE.WEIR_WEIR_LOG", "$JS.API.STREAM.MSG.GET.WEIR_WEIR_LOG", "$JS.API.DIRECT.GET.WEIR_WEIR_LOG",
			"$JS.API.CONSUMER.CREATE.WEIR_WEIR_LOG.other", "$JS.API.CONSUMER.DELETE.WEIR_WEIR_LOG.books_billing",
			"$JS.API.CONSUMER.MSG.NEXT.WEIR_WEIR_LOG.other", "$JS.API.CONSUMER.RESET.WEIR_WEIR_LOG.other", "$JS.ACK.WEIR_WEIR_LOG.other.1.1.1.1.0",
		},
	} {
		nc, err := nats.Connect(url(user), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		for _, subject := range subjects {
			if !mayNotPublish(t, nc, subject) {
				t.Errorf("%s may publish to %s", user, subject)
			}
		}
		for _, subject := range []string{"_INBOX.>", ">", "weir.weir.ingest.>", "weir.weir.log.>"} {
			if _, err := nc.SubscribeSync(subject); err != nil {
				t.Fatal(err)
			}
			if !wasForbidden(nc, subject) {
				t.Errorf("%s may subscribe to %s", user, subject)
			}
		}
	}
}

func mayNotPublish(t *testing.T, nc *nats.Conn, subject string) bool {
	t.Helper()
	if err := nc.Publish(subject, nil); err != nil {
		t.Fatal(err)
	}
	return wasForbidden(nc, subject)
}

// wasForbidden asks whether the last thing the server refused was this subject.
func wasForbidden(nc *nats.Conn, subject string) bool {
	if err := nc.Flush(); err != nil {
		return false
	}
	err := nc.LastError()
	return errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), `"`+subject+`"`)
}
