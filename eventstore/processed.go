package eventstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
)

// forgetAtOnce is how many messages are forgotten in one statement.
const forgetAtOnce = 10_000

// Processed notes in tx that a consumer deals with a message, and reports whether
// it is the first time. What the consumer does belongs into the same transaction:
// then it happens once, however often the message comes. Of several at the same
// time one is the first; the others wait for its transaction, and if that is rolled
// back the next of them is.
//
// The rows are kept until ForgetProcessed. An error ends tx as any failed statement
// does; IsTransient says whether the whole transaction may be tried again.
func (s *Store) Processed(ctx context.Context, tx pgx.Tx, consumer string, id weir.ID) (first bool, err error) {
	tag, err := tx.Exec(ctx, s.sql.Processed, consumer, [16]byte(id))
	if err != nil {
		return false, fmt.Errorf("note message %s as processed by %s: %w", id, consumer, err)
	}
	return tag.RowsAffected() == 1, nil
}

// ForgetProcessed deletes what a consumer noted before a time, and returns how many
// messages that were. One that comes again afterwards is taken for new: keep them
// for longer than any message may be under way, for which the age of the log stream
// and the furthest that an operator may publish again count. Safe to repeat, and
// while the consumer works.
func (s *Store) ForgetProcessed(ctx context.Context, consumer string, before time.Time) (forgotten int64, err error) {
	for {
		tag, err := s.pool.Exec(ctx, s.sql.ForgetProcessed, consumer, before, forgetAtOnce)
		if err != nil {
			return forgotten, fmt.Errorf("forget what %s processed before %s: %w", consumer, before.Format(time.RFC3339), err)
		}
		forgotten += tag.RowsAffected()
		if tag.RowsAffected() < forgetAtOnce {
			return forgotten, nil
		}
	}
}
