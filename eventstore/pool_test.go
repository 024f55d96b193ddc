package eventstore_test

import (
	"testing"

	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// TestConnectionsOfThePool are those of the configuration, unless the URL knows better.
func TestConnectionsOfThePool(t *testing.T) {
	t.Parallel()
	url := testkit.Database(t)
	for _, c := range []struct {
		config eventstore.Config
		want   int32
	}{
		{eventstore.Config{URL: url}, 16},
		{eventstore.Config{URL: url, Connections: 40}, 40},
		{eventstore.Config{URL: url + "&pool_max_conns=3", Connections: 40}, 3},
	} {
		if got := testkit.Store(t, c.config).Pool().Config().MaxConns; got != c.want {
			t.Errorf("%+v: %d connections, want %d", c.config, got, c.want)
		}
	}
}
