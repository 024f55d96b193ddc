package transport

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-es/weir"
)

// MaxSubjectBytes is the longest subject. The server cuts the connection on very
// long ones, and advises against more than 256 bytes.
const MaxSubjectBytes = 200

// names makes every name that the broker sees, and reads subjects back.
type names struct {
	namespace string
	shards    int
}

// stream is the name of the JetStream stream for facts that are not stored yet.
func (n names) stream() string {
	return "WEIR_" + strings.ToUpper(n.namespace) + "_INGEST"
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
	return "weir." + n.namespace + ".ingest." + strconv.Itoa(int(shard))
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
	rest, ok := strings.CutPrefix(subject, "weir."+n.namespace+".ingest.")
	tokens := strings.Split(rest, ".")
	if !ok || len(tokens) != 3 {
		return "", fmt.Errorf("subject is not weir.%s.ingest.<shard>.<category>.<key>", n.namespace)
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
