package weir_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"pgregory.net/rapid"

	"github.com/weir-es/weir"
)

const (
	zeroULID = "00000000000000000000000000"
	zeroUUID = "00000000-0000-0000-0000-000000000000"
)

func TestCategoryEndsAtTheFirstDash(t *testing.T) {
	for _, c := range []struct {
		stream        weir.StreamID
		category, key string
	}{
		{"seat-A1", "seat", "A1"},
		{"seat-A-1-", "seat", "A-1-"},
		{weir.Stream("seat", "a b.*>"), "seat", "a b.*>"},
		{weir.Stream("order", zeroUUID), "order", zeroUUID},
		{"seat", "seat", ""},
		{"seat-", "seat", ""},
		{"-A1", "", "A1"},
		{"", "", ""},
		{"sièges-é1", "sièges", "é1"},
	} {
		if category, key := c.stream.Category(), c.stream.Key(); category != c.category || key != c.key {
			t.Errorf("%q is of category %q and key %q, want %q and %q", c.stream, category, key, c.category, c.key)
		}
	}
}

func TestIsEmpty(t *testing.T) {
	for stream, want := range map[weir.StreamID]bool{
		"":                                      true,
		"-":                                     true,
		"seat-":                                 true,
		"-A1":                                   true,
		"seat-" + zeroULID:                      true,
		"seat-" + zeroUUID:                      true,
		zeroULID:                                true,
		zeroUUID:                                true,
		"seat-00000000000000000000000000000000": true, // a UUID without dashes

		weir.Singleton:           false,
		"seat":                   false, // but invalid
		"seat-A1":                false,
		"seat-0":                 false,
		"seat-0000":              false,
		"seat-" + zeroULID + "1": false,
		"seat-00000000-0000-0000-0000-000000000001": false,
		"seat- ": false,
	} {
		if got := stream.IsEmpty(); got != want {
			t.Errorf("%q is empty: %t, want %t", stream, got, want)
		}
	}
}

func TestSingletonBecomesAStreamOfItsOwn(t *testing.T) {
	id, other := weir.NewID(), weir.NewID()
	stream := weir.Singleton.Resolve(id)
	if stream != weir.Stream("singleton", id.String()) || stream == weir.Singleton.Resolve(other) {
		t.Errorf("message %s lives in %q", id, stream)
	}
	if stream.IsEmpty() || stream.Validate() != nil {
		t.Errorf("%q is empty or invalid: %v", stream, stream.Validate())
	}
	if got := weir.StreamID("seat-A1").Resolve(id); got != "seat-A1" {
		t.Errorf("a named stream became %q", got)
	}
}

func TestStreamValidate(t *testing.T) {
	long := weir.Stream("seat", strings.Repeat("a", weir.MaxStreamBytes-len("seat-")))
	for _, c := range []struct {
		name   string
		stream weir.StreamID
		reason string
	}{
		{"plain", "seat-A1", ""},
		{"singleton", weir.Singleton, ""},
		{"anything but NUL in the key", "seat-*.>\n\t 'emoji 🪑'", ""},
		{"as long as allowed", long, ""},
		{"longer", long + "a", "1025 bytes"},
		{"no dash", "seat", "no dash"},
		{"empty", "", "no dash"},
		{"NUL", "seat-A\x001", "at byte 6"},
		{"bad UTF-8", "seat-A\xff1", "at byte 6"},
		{"bad UTF-8 in the category", "s\xc3\x28at-A", "at byte 1"},
		{"cut off rune", "seat-A\xf0\x9f\xaa", "at byte 6"},
		{"an honest replacement character", "seat-\ufffd", ""},
		{"bad UTF-8 after a replacement character", "seat-\ufffd\xff", "at byte 8"},
		{"NUL after a replacement character", "seat-\ufffd\x00", "at byte 8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.stream.Validate()
			if c.reason == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var invalid *weir.InvalidStreamError
			if !errors.As(err, &invalid) || !strings.Contains(err.Error(), c.reason) {
				t.Fatalf("error %v, want an *InvalidStreamError with %q", err, c.reason)
			}
			if len(err.Error()) > 1000 {
				t.Errorf("the error is %d bytes long", len(err.Error()))
			}
		})
	}
}

// natsPartition computes shards as nats-server does for a broker-side mapping.
func natsPartition(t *testing.T, shards int) func(subject string) int {
	t.Helper()
	transform, err := server.NewSubjectTransform("*.*", fmt.Sprintf("{{partition(%d,1,2)}}", shards))
	if err != nil {
		t.Fatal(err)
	}
	return func(subject string) int {
		out, err := transform.Match(subject)
		if err != nil {
			t.Fatalf("transform %q: %v", subject, err)
		}
		shard, err := strconv.Atoi(out)
		if err != nil {
			t.Fatalf("transform %q: %v", subject, err)
		}
		return shard
	}
}

func TestShardIsWhatTheServerComputes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, shards := range []int{1, 2, weir.DefaultShards, 1000} {
		partition := natsPartition(t, shards)
		for range 2000 {
			stream := weir.Stream(randomText(random, false), randomText(random, true))
			subject := weir.EncodeToken(stream.Category()) + "." + weir.EncodeToken(stream.Key())
			if got, want := int(stream.Shard(shards)), partition(subject); got != want {
				t.Fatalf("%q is of shard %d of %d, the server says %d", stream, got, shards, want)
			}
		}
	}
}

// randomText is 1 to 30 bytes, some of them hostile; a category has no dash.
func randomText(r *rand.Rand, dashes bool) string {
	const plain = "abcxyzABCXYZ0189_"
	out := make([]byte, 1+r.IntN(30))
	for i := range out {
		out[i] = plain[r.IntN(len(plain))]
		if r.IntN(5) == 0 {
			out[i] = byte(r.IntN(256))
		}
		if out[i] == '-' && !dashes {
			out[i] = '_'
		}
	}
	return string(out)
}

func TestShardsAreFilledEvenly(t *testing.T) {
	const streams = 32_000
	counts := map[weir.Shard]int{}
	for i := range streams {
		counts[weir.Stream("order", strconv.Itoa(i)).Shard(weir.DefaultShards)]++
	}
	for shard := range weir.Shard(weir.DefaultShards) {
		if mean := streams / weir.DefaultShards; counts[shard] < mean*2/3 || counts[shard] > mean*4/3 {
			t.Errorf("shard %d has %d of %d streams", shard, counts[shard], streams)
		}
	}
}

func TestEncodeToken(t *testing.T) {
	for text, want := range map[string]string{
		"":           "",
		"Order_7-b":  "Order_7-b",
		"a.b":        "a=2Eb",
		"*>":         "=2A=3E",
		"=":          "=3D",
		"=2E":        "=3D2E",
		" \t\n\x00":  "=20=09=0A=00",
		"é":          "=C3=A9",
		"\xff":       "=FF",
		"$JS.API.>{": "=24JS=2EAPI=2E=3E=7B",
	} {
		if got := weir.EncodeToken(text); got != want {
			t.Errorf("EncodeToken(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestDecodeTokenRefusesWhatEncodeTokenNeverMakes(t *testing.T) {
	for _, token := range []string{
		"a.b", "*", ">", "a b", "é", "\x00", "a=", "a=2", "=2e", "=2g", "=GG", "=41", "=5F", "=2D", "==", "=2E.", "=2E=",
	} {
		if text, err := weir.DecodeToken(token); err == nil {
			t.Errorf("DecodeToken(%q) = %q", token, text)
		}
	}
}

func FuzzEncodeToken(f *testing.F) {
	for _, seed := range []string{"", "seat", "a.b*>=", "=2E", "\x00\xff", "🪑", zeroUUID} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		token := weir.EncodeToken(text)
		if at := strings.IndexFunc(token, notInToken); at >= 0 {
			t.Fatalf("%q is encoded as %q, illegal at byte %d", text, token, at)
		}
		// One text for each token: no two texts can meet in one.
		if back, err := weir.DecodeToken(token); err != nil || back != text {
			t.Fatalf("%q is encoded as %q and decoded as %q, %v", text, token, back, err)
		}
	})
}

func notInToken(r rune) bool {
	return !strings.ContainsRune("=_-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", r)
}

func FuzzDecodeToken(f *testing.F) {
	for _, seed := range []string{"", "seat", "=2E", "=2e", "=41", "=", "a.b", "=C3=A9"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		text, err := weir.DecodeToken(token)
		if err == nil && weir.EncodeToken(text) != token {
			t.Fatalf("%q is decoded as %q, which is encoded as %q", token, text, weir.EncodeToken(text))
		}
	})
}

func TestTokensAreInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		short := rapid.StringOfN(rapid.RuneFrom([]rune("=.2E*ab")), 0, 6, -1)
		a, b := short.Draw(t, "a"), short.Draw(t, "b")
		if a != b && weir.EncodeToken(a) == weir.EncodeToken(b) {
			t.Fatalf("%q and %q are both encoded as %q", a, b, weir.EncodeToken(a))
		}
	})
}

func TestStreamKeepsCategoryAndKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		category := rapid.StringMatching(`[^-]+`).Draw(t, "category")
		key := rapid.String().Draw(t, "key")
		s := weir.Stream(category, key)
		if s.Category() != category || s.Key() != key {
			t.Fatalf("%q is of category %q and key %q", s, s.Category(), s.Key())
		}
	})
}

func BenchmarkEncodeToken(b *testing.B) {
	for name, text := range map[string]string{"plain": "01KKPKQHP0ABCDEFGHJKMNPQRS", "escaped": "ada.lovelace@example.org/7"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				weir.EncodeToken(text)
			}
		})
	}
}

func BenchmarkShard(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		weir.StreamID("order-01KKPKQHP0ABCDEFGHJKMNPQRS").Shard(weir.DefaultShards)
	}
}
