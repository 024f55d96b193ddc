package batching

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestQuantilesAreAFifthTooHighAtMost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		numbers := rapid.SliceOfN(rapid.IntRange(1, 1_000_000), 1, 300).Draw(t, "numbers")
		var s sketch
		now := time.Now()
		for _, n := range numbers {
			s.add(now, float64(n), 1)
		}
		slices.Sort(numbers)
		for _, q := range []float64{0.5, 0.99, 0.999} {
			want := float64(numbers[int(math.Ceil(q*float64(len(numbers))))-1])
			if got := s.quantile(q); got < want*0.999 || got > want*1.201 {
				t.Fatalf("quantile %v is %v, want %v", q, got, want)
			}
		}
	})
}

func TestWhatIsOldWeighsLess(t *testing.T) {
	var s sketch
	now := time.Now()
	s.add(now, 1000, 100)
	now = now.Add(halfLife)
	s.add(now, 1, 40)
	if q := s.quantile(0.5); q < 1000 {
		t.Errorf("the median is %v: 100 numbers weigh less than 40 after one half life", q)
	}
	s.add(now, 1, 20)
	if q := s.quantile(0.5); q != 1 {
		t.Errorf("the median is %v: 100 numbers weigh more than 60 after one half life", q)
	}
}

// For years, with pauses longer than any weight lasts.
func TestASketchDoesNotWearOut(t *testing.T) {
	var s sketch
	now := time.Now()
	for n := range 100_000 {
		now = now.Add(time.Duration(n%7) * 10 * time.Minute)
		s.add(now, 5, 1)
		if q := s.quantile(0.999); q < 5 || q > 6 {
			t.Fatalf("the quantile of fives is %v after %d", q, n)
		}
	}
	s.add(now.Add(100*365*24*time.Hour), 50, 1)
	if q := s.quantile(0.5); q < 50 {
		t.Errorf("the median is %v after a century", q)
	}
}
