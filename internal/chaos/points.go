package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/weir-es/weir/internal/crash"
)

// swept is what came of a sweep over the points.
type swept struct {
	Seed       uint64   `json:"seed"`
	Points     int      `json:"points"`
	Reached    int      `json:"reached"`
	Unreached  []string `json:"unreached"`
	Deaths     int      `json:"deaths"`
	Events     int      `json:"events"`
	Violations int      `json:"violations"`
	First      string   `json:"first_violation"`
	Seconds    float64  `json:"seconds"`

	wrong []string
}

// sweep has a process kill itself at every point, one after the other, while all the
// others go on, and has the tables checked when it is over.
func sweep(ctx context.Context, o options) (outcome, error) {
	if o.list {
		return pointList(crash.Points()), nil
	}
	began := time.Now()
	spots := spotsOf(o)
	out := &swept{Seed: o.seed, Unreached: []string{}}
	for _, late := range []bool{true, false} {
		some := slices.DeleteFunc(slices.Clone(spots), func(p spot) bool { return p.late() != late })
		if len(some) == 0 {
			continue
		}
		if err := out.play(ctx, o, some, late); err != nil {
			return nil, err
		}
	}
	out.count(spots)
	out.Seconds = time.Since(began).Round(100 * time.Millisecond).Seconds()
	return out, nil
}

// spotsOf are those that the options ask for.
func spotsOf(o options) []spot {
	all := spots()
	if o.only != "" {
		return slices.DeleteFunc(all, func(p spot) bool { return p.point.String() != o.only })
	}
	dice := dice(o.seed, "spots")
	if o.sample > 0 && o.sample < len(all) {
		dice.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:o.sample]
	}
	return all
}

// play is a day of deaths. With late the view of balances is folded like any other.
func (s *swept) play(ctx context.Context, o options, spots []spot, late bool) error {
	d, err := newDay(ctx, setting{seed: o.seed, instances: max(o.instances, 2), feeders: 3, writers: 3, every: 100 * time.Millisecond,
		skew: skewOfAll, rest: 200 * time.Millisecond, relayed: true, late: late, careful: true})
	if err != nil {
		return err
	}
	d.verbose, d.began = o.verbose, time.Now()
	for _, seat := range d.seats {
		seat.hear = func(p *process) { d.tell("%s: %v\n%s", p.name, p.err, lastOf(p.problems.text(), 2000)) }
	}
	err = s.visit(ctx, d, o, spots)
	if err == nil {
		err = s.judge(ctx, d, o)
	}
	return errors.Join(err, d.close())
}

// visit has somebody die at each spot.
func (s *swept) visit(ctx context.Context, d *day, o options, spots []spot) error {
	dice := dice(o.seed, "passings")
	for _, p := range spots {
		began := time.Now()
		end := death{p.point.String(), 1 + dice.IntN(p.most)}
		reached, err := d.visit(ctx, p, end)
		if err == nil && !reached { // what the victim had may have gone to another meanwhile
			reached, err = d.visit(ctx, p, end)
		}
		if err != nil {
			return fmt.Errorf("die at %s: %w", end, err)
		}
		d.tell("%s: reached %v, %s", end, reached, time.Since(began).Round(time.Millisecond))
		if reached {
			s.Deaths++
		} else {
			s.Unreached = append(s.Unreached, p.String())
		}
	}
	return nil
}

// judge lets everything settle and adds what is wrong.
func (s *swept) judge(ctx context.Context, d *day, o options) error {
	found, err := d.judge(ctx, o)
	if err != nil {
		return err
	}
	s.Events += found.Events
	s.Violations += found.Violations
	s.wrong = append(s.wrong, found.wrong...)
	s.First = first(s.wrong)
	return nil
}

// count counts the points, of which some have several spots.
func (s *swept) count(spots []spot) {
	reached := map[*crash.Point]bool{}
	for _, p := range spots {
		was, seen := reached[p.point]
		reached[p.point] = (was || !seen) && !slices.Contains(s.Unreached, p.String())
	}
	s.Points = len(reached)
	for _, yes := range reached {
		if yes {
			s.Reached++
		}
	}
}

func (s *swept) print(out io.Writer, o options) error {
	if o.json {
		return json.NewEncoder(out).Encode(s)
	}
	_, err := fmt.Fprintf(out, "points, seed %d: %d of %d reached in %.0f s, %d deaths, %d events, %d violations\n",
		s.Seed, s.Reached, s.Points, s.Seconds, s.Deaths, s.Events, s.Violations)
	return err
}

func (s *swept) complaint() error {
	var all []error
	if len(s.Unreached) > 0 {
		all = append(all, fmt.Errorf("nobody passed %s", strings.Join(s.Unreached, ", ")))
	}
	for _, text := range s.wrong {
		all = append(all, errors.New(text))
	}
	if s.Violations > 0 {
		all = append(all, fmt.Errorf("%d violations", s.Violations))
	}
	return errors.Join(all...)
}

// pointList is printed and nothing else.
type pointList []*crash.Point

func (l pointList) print(out io.Writer, o options) error {
	for _, p := range l {
		if _, err := fmt.Fprintf(out, "%-17s %s\n", p, p.About()); err != nil {
			return err
		}
	}
	return nil
}

func (pointList) complaint() error { return nil }
