package projection_test

import (
	"testing"

	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/projection"
)

func TestStatusesOfViews(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := testkit.Context(t)
	if err := sums.Prepare(ctx, s); err != nil {
		t.Fatal(err)
	}
	w, stop := start(t, s, lists)
	tardy := add("a-1", 0)
	ingest(t, s, add("a-1", 1), add("b-1", 1))
	settle(t, s, w)
	ingest(t, s, tardy)
	settle(t, s, w)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	ingest(t, s, add("b-1", 2))
	if _, err := lists.Rebuild(ctx, s, projection.Rebuild{}); err != nil {
		t.Fatal(err)
	}
	all, err := projection.Statuses(ctx, s)
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v: %v", all, err)
	}
	got := all[0]
	if got.View != "lists" || got.Edition != 2 || got.RebuiltAt == nil || got.At == 0 || got.LagEvents != 1 || got.LagTime <= 0 ||
		got.Inversions != 1 || got.Rewinds != 1 || got.Replayed != 2 || got.Rebuilding != nil {
		t.Errorf("lists: %+v", got)
	}
	if got := all[1]; got.View != "sums" || got.Edition != 1 || got.LagEvents != 4 || got.At != 0 {
		t.Errorf("sums: %+v", got)
	}
}
