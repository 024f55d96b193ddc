package app_test

import (
	"fmt"
	"testing"
)

// TestP9_EveryProjectionHasAConnection, however many there are, and appends have theirs
// besides. (zitadel PR#7094)
func TestP9_EveryProjectionHasAConnection(t *testing.T) {
	t.Parallel()
	config := service(t)
	for n := range 20 {
		busy := journal
		busy.Name = fmt.Sprint("journal", n)
		config.Projections = append(config.Projections, busy)
	}
	a := open(t, config)
	if got, want := int(a.Store.Pool().Config().MaxConns), 16+len(config.Projections); got != want {
		t.Errorf("%d connections for %d projections, want %d", got, len(config.Projections), want)
	}
}
