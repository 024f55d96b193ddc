package batching

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The trail against what it stands for: all arrivals.
func TestLatenessIsTheWindowThatWouldHaveCaughtIt(t *testing.T) {
	const memory = 300 * time.Millisecond
	rapid.Check(t, func(t *rapid.T) {
		began := time.Now()
		now, tr := began, &trail{}
		var all []mark
		for range rapid.IntRange(1, 300).Draw(t, "arrivals") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(t, "pause")) * time.Microsecond)
			place := [16]byte{byte(rapid.IntRange(0, 255).Draw(t, "place"))}
			want := lateness(all, place, now)
			got := tr.arrive(place, now, memory)
			all = append(all, mark{place, now})
			switch most := want + memory/fineness; {
			case want < 0 && got != 0:
				t.Fatalf("lateness %v at %v of one on time", got, now.Sub(began))
			case want >= 0 && want <= memory && (got < want || got > most):
				t.Fatalf("lateness %v at %v, want %v", got, now.Sub(began), want)
			case want > memory && (got <= memory || got > most):
				t.Fatalf("lateness %v at %v, want more than %v and at most %v", got, now.Sub(began), memory, most)
			}
			if len(tr.marks) > fineness+1 {
				t.Fatalf("%d marks", len(tr.marks))
			}
		}
	})
}

func TestP9_ATrailIsShortHoweverMuchArrives(t *testing.T) {
	now, tr := time.Now(), &trail{}
	for n := range 100_000 {
		now = now.Add(10 * time.Microsecond)
		if late := tr.arrive(numberPlace(item{number: n}), now, ms(300)); late != 0 || len(tr.marks) > fineness+1 {
			t.Fatalf("%d marks, lateness %v", len(tr.marks), late)
		}
	}
}

// lateness is below zero when nothing sorts after place.
func lateness(all []mark, place [16]byte, now time.Time) time.Duration {
	for _, m := range all {
		if before(place, m.place) {
			return now.Sub(m.at)
		}
	}
	return -1
}

func TestP9_AMillionIdleKeysAreForgotten(t *testing.T) {
	const memory, most = 300 * time.Millisecond, 1000
	now, all := time.Now(), newTrails[int](memory, most)
	for key := range 1_000_000 {
		all.of(key, nil, now)
		if n := len(all.young) + len(all.old); n > 2*most {
			t.Fatalf("%d keys remembered, want at most %d", n, 2*most)
		}
	}
	for range 2 {
		now = now.Add(memory)
		all.expire(now)
	}
	if !all.isEmpty() {
		t.Errorf("%d keys remembered after a pause", len(all.young)+len(all.old))
	}
}

func TestAKeyIsRememberedAsLongAsItsMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now, all := time.Now(), newTrails[int](ms(300), 1000)
		last := map[int]time.Time{}
		for n := range rapid.IntRange(1, 100).Draw(t, "arrivals") {
			now = now.Add(ms(rapid.IntRange(0, 200).Draw(t, "pause")))
			all.expire(now)
			key := rapid.IntRange(0, 3).Draw(t, "key")
			tr := all.of(key, nil, now)
			tr.arrive([16]byte{byte(n)}, now, all.memory)
			if at, ok := last[key]; ok && now.After(at) && now.Sub(at) < all.memory-all.memory/fineness && len(tr.marks) == 1 && tr.marks[0].at.Equal(now) {
				t.Fatalf("key %d was forgotten after %v", key, now.Sub(at))
			}
			last[key] = now
		}
	})
}
