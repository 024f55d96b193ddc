package app_test

import (
	"testing"
	"time"

	"github.com/weir-es/weir/internal/testkit"
)

// TestP1_AcknowledgedOnlyAfterTheCommit: facts reach a service whose database is
// away, and the service dies. Had it acknowledged them, nobody would have them.
func TestP1_AcknowledgedOnlyAfterTheCommit(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	server := ownPostgres(t)
	config := service(t)
	config.Postgres, config.Inbox = server.URL(), soon
	log := &logs{}
	config.Logger = log.logger()
	a := open(t, config)
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	testkit.Await(t, 5*time.Second, "it owns the shards", func() bool { return a.Health(ctx).Leases > 0 })
	if err := server.Stop(ctx, "fast"); err != nil {
		t.Fatal(err)
	}
	publish(t, a, "seat-1", "Ada")
	testkit.Await(t, 30*time.Second, "it tried to store, or has given up its leases", func() bool {
		return log.has("cannot store") || log.has("another instance took over")
	})
	a.Kill()
	<-ended
	a.Close()
	if err := server.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	config.Logger = nil
	b := open(t, config)
	begin(t, b)
	awaitGuests(t, b, "seat-1", 1, 15*time.Second)
}
