package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/projection"
)

// What there is to be said in the load of everything: money that moves from one
// account to another, and facts that several producers have about one thing.
type (
	moved struct {
		Amount   int64  `json:"amount"`
		Transfer string `json:"transfer"`
	}
	remark struct {
		By     string `json:"by"`
		Number int    `json:"number"`
		// Ballast makes it large, to fill the broker.
		Ballast string `json:"ballast,omitempty"`
	}
)

var loadTypes = weir.Types{"chaos.moved": weir.EventOf[moved](), "chaos.said": weir.EventOf[remark]()}

// What the load touches. Every account begins with what its first event gives it.
const (
	accounts     = 24
	topics       = 40
	firstDeposit = 1000
)

func accountOf(n int) weir.StreamID { return weir.Stream("account", fmt.Sprintf("%02d", n)) }
func topicOf(n int) weir.StreamID   { return weir.Stream("topic", fmt.Sprintf("%02d", n)) }

// account is what decisions about money look at.
type account struct{ Balance int64 }

// Evolve moves the money.
func (a account) Evolve(event any) account {
	if m, ok := event.(moved); ok {
		a.Balance += m.Amount
	}
	return a
}

// turnover takes money out of an account and puts it back, in one decision of two
// events.
type turnover struct {
	account weir.StreamID
	amount  int64
	name    string
}

var errPoor = errors.New("there is not enough in the account")

// Stream of the account.
func (t turnover) Stream() weir.StreamID { return t.account }

// Decide that nothing goes below zero.
func (t turnover) Decide(a account) ([]any, error) {
	if a.Balance < t.amount {
		return nil, errPoor
	}
	return []any{moved{-t.amount, t.name}, moved{t.amount, t.name}}, nil
}

// counted counts, in any order.
type counted struct {
	Count int64 `json:"count"`
	Sum   int64 `json:"sum"`
}

// Evolve adds one.
func (c counted) Evolve(event any) counted {
	c.Count++
	if m, ok := event.(moved); ok {
		c.Sum += m.Amount
	}
	return c
}

// The read models of the load, and the handler; each process has its own, since its
// handler notes who wrote.
var (
	counts   = projection.View[counted]{Name: "count", Key: projection.ByStream, Order: projection.ByVersion}
	ordered  = projection.View[chain]{Name: "ordered", Key: projection.ByStream}
	balances = projection.View[counted]{Name: "balance", Key: projection.ByStream, Inline: true}
	groups   = projection.View[chain]{Name: "grouped", Key: projection.By(groupOf)}
)

// groupOf spreads accounts over four rows, and facts over one row for each that says
// them.
func groupOf(e weir.Event, value any) string {
	if s, ok := value.(remark); ok {
		by, _, _ := strings.Cut(s.By, "/")
		return by
	}
	key := e.Stream.Key()
	return "accounts-" + string(rune('0'+(key[len(key)-1]-'0')%4))
}

//go:embed sql/all_enter.sql
var enterSQL string

// entries is the handler, as the process of that name runs it. Each write goes through
// around.
func entries(writer string, around func(ctx context.Context, value any, write func() error) error) projection.Handler {
	return projection.Handler{Name: "entries", Handle: func(ctx context.Context, tx pgx.Tx, e weir.Event, value any) error {
		return around(ctx, value, func() error {
			_, err := tx.Exec(ctx, enterSQL, [16]byte(e.ID), e.Stream, e.Version, e.Position, e.Stream.Shard(weir.DefaultShards), writer)
			return err
		})
	}}
}
