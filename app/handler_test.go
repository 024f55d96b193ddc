package app_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/weir-es/weir/app"
	"github.com/weir-es/weir/internal/testkit"
)

// TestHealthHandlerAnswersAnOrchestrator: what is alive and ready says 200, what is
// closed says 503, and all say why.
func TestHealthHandlerAnswersAnOrchestrator(t *testing.T) {
	t.Parallel()
	a := open(t, service(t))
	ask := func(path string, want int) (h app.Health) {
		t.Helper()
		answer := httptest.NewRecorder()
		a.HealthHandler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		if answer.Code != want {
			t.Errorf("%s answers %d, want %d: %s", path, answer.Code, want, answer.Body)
		}
		if err := json.Unmarshal(answer.Body.Bytes(), &h); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		return h
	}
	err := a.Run(testkit.Context(t), func(ctx context.Context) error {
		ownsAll(t, a, 10*time.Second)
		if err := a.Settle(ctx); err != nil {
			return err
		}
		ask("/alive", http.StatusOK)
		if h := ask("/ready", http.StatusOK); h.Leases != h.Shared || len(h.Behind) != 2 {
			t.Errorf("ready: %+v", h)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	a.Close()
	ask("/alive", http.StatusServiceUnavailable)
	if h := ask("/ready", http.StatusServiceUnavailable); len(h.Problems) == 0 {
		t.Errorf("closed: %+v", h)
	}
	ask("/health", http.StatusOK)
}
