package app_test

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/internal/testkit"
)

// TestP8_ForeignMessagesBecomeDeadLetters, whole, whatever is wrong with them, and
// everything else on their shard goes on.
func TestP8_ForeignMessagesBecomeDeadLetters(t *testing.T) {
	t.Parallel()
	config := service(t)
	config.Inbox, config.MaxDataBytes = soon, 1000
	a, b := open(t, config), outsider(t, config)
	seat := weir.StreamID("seat-1")
	shard := fmt.Sprint(seat.Shard(a.Store.Shards()), ".")
	zero := weir.Stream("seat", strings.Repeat("0", 26))
	id := func() string { return weir.NewID().String() }
	header := func(pairs ...string) nats.Header {
		h := nats.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h[pairs[i]] = append(h[pairs[i]], pairs[i+1])
		}
		return h
	}
	cases := map[string]struct {
		subject string
		header  nats.Header
		data    string
		reason  string
	}{
		"no headers":         {shard + "seat.1", nil, "rubbish", "serialization"},
		"nothing at all":     {shard + "seat.1", nil, "", "serialization"},
		"no id":              {shard + "seat.1", header("Weir-Type", "seat.held"), "{}", "serialization"},
		"no type":            {shard + "seat.1", header("Nats-Msg-Id", id()), "{}", "serialization"},
		"id is no id":        {shard + "seat.1", header("Nats-Msg-Id", "me", "Weir-Type", "seat.held"), "{}", "serialization"},
		"another's shard":    {otherShard(shard) + "seat.1", header("Nats-Msg-Id", id(), "Weir-Type", "seat.held"), "{}", "serialization"},
		"too many tokens":    {shard + "seat.1.2", header("Nats-Msg-Id", id(), "Weir-Type", "seat.held"), "{}", "serialization"},
		"too few tokens":     {shard + "seat", header("Nats-Msg-Id", id(), "Weir-Type", "seat.held"), "{}", "serialization"},
		"bad escape":         {shard + "seat.=ZZ", header("Nats-Msg-Id", id(), "Weir-Type", "seat.held"), "{}", "serialization"},
		"NUL in the stream":  {shard + "seat.=00", header("Nats-Msg-Id", id(), "Weir-Type", "seat.held"), "{}", ""},
		"not JSON":           {shard + "seat.1", header("Nats-Msg-Id", id(), "Weir-Type", "seat.held"), `{"Guest":`, ""},
		"too large":          {shard + "seat.1", header("Nats-Msg-Id", id(), "Weir-Type", "seat.held"), `"` + strings.Repeat("x", 1000) + `"`, "too_large"},
		"empty stream":       {fmt.Sprint(zero.Shard(a.Store.Shards()), ".seat.", zero.Key()), header("Nats-Msg-Id", id(), "Weir-Type", "seat.held"), "{}", "empty_stream_id"},
		"header not UTF-8":   {shard + "seat.1", header("Nats-Msg-Id", id(), "Weir-Type", "\xff\xfe"), "{}", ""},
		"odd header":         {shard + "seat.1", header("Nats-Msg-Id", id(), "Weir-Type", "%zz", "Other", "kept", "Other", "twice"), "{}", "serialization"},
		"bytes, not UTF-8":   {shard + "seat.1", header("Nats-Msg-Id", id(), "Weir-Type", "%zz"), "\xff\x00\xfe", ""},
		"extra is no object": {shard + "seat.1", header("Nats-Msg-Id", id(), "Weir-Type", "seat.held", "Weir-Extra", "[1]"), "{}", ""},
	}
	begin(t, a)
	for name, c := range cases {
		c.data = strings.ReplaceAll(c.data, "{}", `{"Guest":"`+name+`"}`)
		cases[name] = c
		m := &nats.Msg{Subject: b.base + c.subject, Header: c.header, Data: []byte(c.data)}
		if _, err := b.js.PublishMsg(testkit.Context(t), m); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	publish(t, a, seat, "Ada")
	awaitGuests(t, a, string(seat), 1, 5*time.Second)
	testkit.Within(5*time.Second, func() bool { return a.Stats().DeadLetters >= int64(len(cases)) })
	for name, c := range cases {
		var n int
		var reason, text string
		var head []byte
		err := a.Store.Pool().QueryRow(testkit.Context(t), a.Store.Qualify(
			"select count(*), coalesce(max(reason), ''), coalesce(max(error), ''), coalesce((array_agg(header))[1], '') from weir.dead_letters where data = $1"),
			[]byte(c.data)).Scan(&n, &reason, &text, &head)
		if err != nil || n < 1 || c.reason != "" && reason != c.reason || text == "" {
			t.Errorf("%s: %d letters, reason %q, error %q, %v", name, n, reason, text, err)
		}
		for key, values := range c.header {
			for _, value := range values {
				if !bytes.Contains(head, []byte(key+": "+value+"\r\n")) {
					t.Errorf("%s: header %s: %s is not in %q", name, key, value, head)
				}
			}
		}
	}
	settle(t, a, 5*time.Second)
}

func otherShard(shard string) string {
	if shard == "0." {
		return "1."
	}
	return "0."
}

// TestP8_SubjectThatIsNoText: the broker takes subjects that a text column does
// not; such a message must not stop its shard. It is sent by hand, since client
// libraries may refuse to.
func TestP8_SubjectThatIsNoText(t *testing.T) {
	t.Parallel()
	config := service(t)
	config.Inbox = soon
	a := open(t, config)
	begin(t, a)
	conn, err := net.Dial("tcp", strings.TrimPrefix(config.NATS, "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	base := fmt.Sprintf("weir.%s.ingest.%d.seat.", config.Name, weir.StreamID("seat-1").Shard(a.Store.Shards()))
	fmt.Fprintf(conn, "CONNECT {\"verbose\":false}\r\nPUB %s\xff\xfe 2\r\n{}\r\nPUB %sa\x00b 2\r\n{}\r\nPING\r\n", base, base)
	answer := make([]byte, 4096)
	for !bytes.Contains(answer, []byte("PONG")) {
		n, err := conn.Read(answer)
		if err != nil {
			t.Fatal(err)
		}
		answer = answer[:max(n, 4)]
	}
	publish(t, a, "seat-1", "Ada")
	awaitGuests(t, a, "seat-1", 1, 5*time.Second)
	settle(t, a, 5*time.Second)
	var letters int
	if err := a.Store.Pool().QueryRow(testkit.Context(t), a.Store.Qualify("select count(*) from weir.dead_letters")).Scan(&letters); err != nil || letters != 2 {
		t.Errorf("%d dead letters, want 2; %v", letters, err)
	}
}

// TestP8_FactThatTheDatabaseRefuses is one message's failure, not its batch's. The
// refusal here is a rule that an operator put on the table.
func TestP8_FactThatTheDatabaseRefuses(t *testing.T) {
	t.Parallel()
	config := service(t)
	config.Inbox = soon
	a := open(t, config)
	alter(t, a, `alter table weir.events add constraint no_poison check (data is null or data::text not like '%poison%')`)
	begin(t, a)
	publish(t, a, "seat-1", "Ada", "poison", "Ben")
	publish(t, a, "seat-2", "Cid")
	awaitGuests(t, a, "seat-1", 2, 5*time.Second)
	awaitGuests(t, a, "seat-2", 1, 5*time.Second)
	settle(t, a, 5*time.Second)
	var reason string
	if err := a.Store.Pool().QueryRow(testkit.Context(t), a.Store.Qualify("select reason from weir.dead_letters")).Scan(&reason); err != nil || reason != "storage" {
		t.Errorf("dead letter with reason %q, %v", reason, err)
	}
	if s := a.Stats(); s.DeadLetters != 1 || s.Stored != 3 {
		t.Errorf("%+v", s)
	}
}
