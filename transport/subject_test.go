package transport

import (
	"errors"
	"strings"
	"testing"

	"github.com/weir-es/weir"
)

var testNames = names{"t", 32, ingest}

func TestSubjectsOfHostileStreams(t *testing.T) {
	for _, key := range []string{"1", "a b", "a.b", "*", ">", `"quoted"`, "💧", "-", "--", "=2A", "a\nb\tc", "ключ", "%", strings.Repeat("k", 150)} {
		stream := weir.Stream("order", key)
		subject, err := testNames.subject(stream)
		must(t, err)
		if strings.ContainsAny(subject, " *>\r\n\t\"") || strings.Count(subject, ".") != 5 {
			t.Errorf("%q makes subject %q", stream, subject)
		}
		if back, err := testNames.parse(subject); err != nil || back != stream {
			t.Errorf("%q comes back as %q, %v", stream, back, err)
		}
	}
}

func TestSubjectTooLong(t *testing.T) {
	for _, key := range []string{strings.Repeat("k", 300), strings.Repeat("💧", 20)} {
		_, err := testNames.subject(weir.Stream("order", key))
		var long *SubjectTooLongError
		if !errors.As(err, &long) || long.Limit != MaxSubjectBytes || long.Size <= long.Limit {
			t.Errorf("%d bytes: %v", len(key), err)
		}
	}
}

func TestForeignSubjectsAreRefused(t *testing.T) {
	good, err := testNames.subject("order-1")
	must(t, err)
	tokens := strings.Split(good, ".")
	with := func(i int, token string) string {
		changed := append([]string(nil), tokens...)
		changed[i] = token
		return strings.Join(changed, ".")
	}
	for name, subject := range map[string]string{
		"empty":           "",
		"other root":      with(0, "dam"),
		"other namespace": with(1, "u"),
		"other room":      with(2, "log"),
		"other shard":     with(3, "31"),
		"padded shard":    with(3, "0"+tokens[3]),
		"negative shard":  with(3, "-1"),
		"no key":          strings.Join(tokens[:5], "."),
		"empty key":       with(5, ""),
		"more":            good + ".x",
		"dash":            with(4, "or-der"),
		"raw byte":        with(5, "a b"),
		"bad escape":      with(5, "=2"),
		"needless escape": with(5, "=31"),
		"lower case":      with(5, "=2a"),
	} {
		if stream, err := testNames.parse(subject); err == nil {
			t.Errorf("%s: %q is read as %q", name, subject, stream)
		}
	}
}

func FuzzSubject(f *testing.F) {
	for _, s := range []string{"order-1", "a b.c-*>", "=-=", "weir.t.ingest.5.order.1", "weir.t.ingest.05.=2A.=3E", "x-\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if stream := weir.StreamID(text); stream.Validate() == nil && !stream.IsEmpty() && stream != weir.Singleton {
			checkSubject(t, stream)
		}
		if stream, err := testNames.parse(text); err == nil {
			if back, err := testNames.subject(stream); err != nil || back != text {
				t.Errorf("%q is read as %q, which makes %q, %v", text, stream, back, err)
			}
		}
	})
}

func checkSubject(t *testing.T, stream weir.StreamID) {
	subject, err := testNames.subject(stream)
	if err != nil {
		if len(subject) != 0 || !errors.As(err, new(*SubjectTooLongError)) {
			t.Errorf("%q: %v", stream, err)
		}
		return
	}
	if back, err := testNames.parse(subject); err != nil || back != stream {
		t.Errorf("%q makes %q and comes back as %q, %v", stream, subject, back, err)
	}
}
