package transport

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-es/weir"
)

// MaxSubjectBytes is the longest subject. The server cuts the connection on very
// long ones, and advises against more than 256 bytes.
const MaxSubjectBytes = 200

// flow is what goes one way.
type flow string

const (
	ingest  flow = "ingest" // facts that are not stored yet
	outflow flow = "log"    // committed events
)

// names makes every name that the broker sees, and reads subjects back.
type names struct {
	namespace string
	shards    int
	flow      flow
}

// stream is the name of the JetStream stream.
func (n names) stream() string {
	return "WEIR_" + strings.ToUpper(n.namespace) + "_" + strings.ToUpper(string(n.flow))
}

// consumer is the durable name of the consumer of a shard.
func (n names) consumer(shard weir.Shard) string {
	return "shard-" + strconv.Itoa(int(shard))
}

// filter is every subject of a shard.
func (n names) filter(shard weir.Shard) string {
	return n.shard(shard) + ".>"
}

func (n names) shard(shard weir.Shard) string {
	return n.base() + strconv.Itoa(int(shard))
}

// base is how every subject begins.
func (n names) base() string {
	return "weir." + n.namespace + "." + string(n.flow) + "."
}

// subject is where messages of an event stream go:
// weir.<namespace>.ingest.<shard>.<category>.<key>. A stream whose subject would
// be too long gives a *SubjectTooLongError.
func (n names) subject(stream weir.StreamID) (string, error) {
	subject := n.shard(stream.Shard(n.shards)) + "." + weir.EncodeToken(stream.Category()) + "." + weir.EncodeToken(stream.Key())
	if len(subject) > MaxSubjectBytes {
		return "", &SubjectTooLongError{stream, len(subject), MaxSubjectBytes}
	}
	return subject, nil
}

// parse is the inverse of subject. It refuses every subject that subject cannot
// have made.
func (n names) parse(subject string) (weir.StreamID, error) {
	tokens, err := n.tokens(subject)
	if err != nil {
		return "", err
	}
	stream, err := parseStream(tokens[1], tokens[2])
	if err != nil {
		return "", err
	}
	if want, err := n.subject(stream); err != nil || want != subject {
		return "", fmt.Errorf("subject has shard %.20q, stream %q belongs to %d of %d", tokens[0], stream, stream.Shard(n.shards), n.shards)
	}
	return stream, nil
}

// tokens are the shard, the category and the key.
func (n names) tokens(subject string) ([]string, error) {
	rest, ok := strings.CutPrefix(subject, n.base())
	tokens := strings.Split(rest, ".")
	if !ok || len(tokens) != 3 {
		return nil, fmt.Errorf("subject is not %s<shard>.<category>.<key>", n.base())
	}
	return tokens, nil
}

// maxCategoryBytes is the longest category that is a token of a place as it is.
const maxCategoryBytes = 80

// place is where committed events of an event stream go. There is one for every
// stream that the store takes: where a name is too long for a subject, a hash stands
// for it, which whole reports to be not so. A hash begins with "=h", which no encoded
// text does.
func (n names) place(stream weir.StreamID) (subject string, whole bool) {
	if subject, err := n.subject(stream); err == nil && len(weir.EncodeToken(stream.Category())) <= maxCategoryBytes {
		return subject, true
	}
	return n.shard(stream.Shard(n.shards)) + "." + categoryToken(stream.Category()) + "." + hashToken(string(stream)), false
}

// categoryToken is the same for all streams of a category.
func categoryToken(category string) string {
	if token := weir.EncodeToken(category); len(token) <= maxCategoryBytes {
		return token
	}
	return hashToken(category)
}

func hashToken(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "=h" + hex.EncodeToString(sum[:16])
}

// locate is the inverse of place; name is that of the stream where a hash stands for
// it.
func (n names) locate(subject, name string) (stream weir.StreamID, err error) {
	tokens, err := n.tokens(subject)
	if err != nil {
		return "", err
	}
	if stream = weir.StreamID(name); name == "" {
		stream, err = parseStream(tokens[1], tokens[2])
	}
	if err != nil {
		return "", err
	}
	if want, whole := n.place(stream); want != subject || whole != (name == "") {
		return "", fmt.Errorf("subject is not that of stream %.100q", stream)
	}
	return stream, nil
}

func parseStream(categoryToken, keyToken string) (weir.StreamID, error) {
	category, err := weir.DecodeToken(categoryToken)
	if err != nil {
		return "", err
	}
	key, err := weir.DecodeToken(keyToken)
	if err != nil {
		return "", err
	}
	if category == "" || key == "" || strings.Contains(category, "-") {
		return "", fmt.Errorf("category %q and key %q make no stream name", category, key)
	}
	return weir.Stream(category, key), nil
}
