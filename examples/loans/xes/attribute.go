package xes

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Keys that are kept.
const (
	keyName       = "concept:name"
	keyTransition = "lifecycle:transition"
	keyTime       = "time:timestamp"
	keyResource   = "org:resource"
	keyAmount     = "AMOUNT_REQ"
)

func kept(key string) bool {
	switch key {
	case keyName, keyTransition, keyTime, keyResource, keyAmount:
		return true
	}
	return false
}

// seen are the kept keys that one trace or event already has. There are a
// handful, so a list is enough.
type seen []string

func (s *seen) once(key string) error {
	for _, other := range *s {
		if other == key {
			return fmt.Errorf("%s is given twice", key)
		}
	}
	*s = append(*s, key)
	return nil
}

func (t *Trace) set(key, value string) error {
	if err := checkLength(key, value); err != nil {
		return err
	}
	switch key {
	case keyName:
		t.Name = value
	case keyAmount:
		amount, err := parseAmount(value)
		t.AmountReq = amount
		return err
	}
	return nil
}

func (e *Event) set(key, value string) (err error) {
	if err := checkLength(key, value); err != nil {
		return err
	}
	switch key {
	case keyName:
		e.Activity = value
	case keyTransition:
		e.Transition = value
	case keyResource:
		e.Resource = value
	case keyTime:
		e.Time, err = parseTime(value)
	}
	return err
}

func checkLength(key, value string) error {
	if len(value) > MaxTextBytes {
		return fmt.Errorf("%s is %d bytes long, the limit is %d", key, len(value), MaxTextBytes)
	}
	return nil
}

// unknown is what logs write for a value that a case does not have.
const unknown = "UNKNOWN"

// parseAmount reads a whole amount, which some tools write as 20000.0.
func parseAmount(value string) (*int64, error) {
	if value == "" || value == unknown {
		return nil, nil
	}
	number, err := strconv.ParseFloat(value, 64)
	amount := int64(number)
	if err != nil || number < -MaxAmount || number > MaxAmount || float64(amount) != number {
		return nil, fmt.Errorf("%s %.40q is not a whole number up to %d", keyAmount, value, int64(MaxAmount))
	}
	return &amount, nil
}

// timeLayouts are the forms of xs:dateTime (the zone may be missing, which we
// take as UTC) and the one older tools write. Fractions are read by all of them.
var timeLayouts = []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04:05Z0700"}

var errTime = errors.New("is not a time like 2011-10-01T00:38:44.546+02:00")

func parseTime(value string) (time.Time, error) {
	for _, layout := range timeLayouts {
		t, err := time.Parse(layout, value)
		if err == nil {
			return t.UTC(), checkTime(value, t)
		}
	}
	return time.Time{}, fmt.Errorf("%s %.60q %w", keyTime, value, errTime)
}

func checkTime(value string, t time.Time) error {
	if t.Before(time.UnixMilli(0)) {
		return fmt.Errorf("%s %s lies before 1970", keyTime, value)
	}
	return nil
}
