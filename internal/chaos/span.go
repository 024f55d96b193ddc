package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// longestDelay is how long a message may be held back at most.
const longestDelay = time.Minute

// span is a range of durations, written "0..2s". Its end is not part of it, unless it
// is its beginning as well.
type span struct{ Least, Most time.Duration }

func (s *span) String() string { return fmt.Sprintf("%s..%s", s.Least, s.Most) }

// Set reads a span, for package flag.
func (s *span) Set(text string) error {
	least, most, ok := strings.Cut(text, "..")
	if !ok {
		return errors.New(`a range is written "0..2s"`)
	}
	var read span
	var err error
	if read.Least, err = time.ParseDuration(least); err != nil {
		return err
	}
	if read.Most, err = time.ParseDuration(most); err != nil {
		return err
	}
	if read.Least < 0 || read.Most < read.Least || read.Most > longestDelay {
		return fmt.Errorf("a range ascends within 0..%s", longestDelay)
	}
	*s = read
	return nil
}

func (s *span) draw(dice *rand.Rand) time.Duration { return between(dice, s.Least, s.Most) }
