package batching

import (
	"math"
	"time"
)

const (
	// buckets of a sketch; the last begins above 30 million.
	buckets = 96
	// halfLife is how long it takes until what a sketch has seen weighs half.
	halfLife = 30 * time.Second
)

// sketch remembers how a number was distributed of late. It is as large however
// much it has seen. Each bucket ends a fifth above the one before, so a quantile
// is too high by a fifth at most, and never too low (DDSketch: Masson, Rim and
// Lee, 2019). What is old weighs less; instead of touching all buckets, what is
// new weighs more (forward decay: Cormode, Shkapenyuk, Srivastava and Xu, 2009).
// It reads no clock.
type sketch struct {
	weights [buckets]float64
	total   float64
	since   time.Time // when one number weighed 1
}

// Weights are brought down again before they outgrow a float64.
const maxAge = 100 * halfLife

// add notes a number, 1 or above, n times.
func (s *sketch) add(now time.Time, number float64, n int64) {
	weight := float64(n) * s.weight(now)
	s.weights[bucket(number)] += weight
	s.total += weight
}

func (s *sketch) weight(now time.Time) float64 {
	if age := now.Sub(s.since); age > maxAge {
		s.age(math.Exp2(-halves(age)))
		s.since = now
	}
	return math.Exp2(halves(now.Sub(s.since)))
}

func (s *sketch) age(factor float64) {
	s.total = 0
	for i := range s.weights {
		s.weights[i] *= factor
		s.total += s.weights[i]
	}
}

func halves(d time.Duration) float64 { return d.Seconds() / halfLife.Seconds() }

// quantile is a number that a part q of all numbers does not exceed; 1 when
// nothing was seen.
func (s *sketch) quantile(q float64) float64 {
	above := s.total * (1 - q)
	for i := buckets - 1; i > 0; i-- {
		if above -= s.weights[i]; above < 0 {
			return ends[i]
		}
	}
	return ends[0]
}

// ends are the numbers that buckets end with: powers of 1.2.
var ends = func() (ends [buckets]float64) {
	for i := range ends {
		ends[i] = math.Pow(1.2, float64(i))
	}
	return ends
}()

func bucket(number float64) int {
	if number <= 1 {
		return 0
	}
	// A number that ends a bucket belongs to it, whatever the logarithm makes of it.
	return min(int(math.Ceil(math.Log(number)/math.Log(1.2)-1e-9)), buckets-1)
}

// tick is the unit in which durations are counted. None at all is 1.
const tick = 100 * time.Microsecond

func (s *sketch) addTime(now time.Time, d time.Duration, n int64) {
	s.add(now, 1+float64(d)/float64(tick), n)
}

func (s *sketch) quantileTime(q float64) time.Duration {
	return time.Duration((s.quantile(q) - 1) * float64(tick))
}
