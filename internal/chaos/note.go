package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/projection"
)

// noted is what a producer of fan-in has to say: who it is, and its how manieth
// message this is, from 1.
type noted struct {
	Producer int `json:"producer"`
	Number   int `json:"number"`
}

var notes = weir.Types{"chaos.noted": weir.EventOf[noted]()}

// chain is a row that no two orders of the same events have in common.
type chain struct {
	Count int    `json:"count"`
	Hash  string `json:"hash"` // over the hash before and the event
}

// Evolve adds a link.
func (c chain) Evolve(event any) chain {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %v", c.Hash, event))
	return chain{c.Count + 1, hex.EncodeToString(sum[:16])}
}

// latest is a row that holds the event that sorts last, whichever came last.
type latest struct {
	noted
}

// Evolve forgets what was.
func (l latest) Evolve(event any) latest {
	n, ok := event.(noted)
	if !ok {
		return l
	}
	return latest{n}
}

// The read models of fan-in.
var (
	chains  = projection.View[chain]{Name: "chain", Key: projection.ByStream}
	latests = projection.View[latest]{Name: "latest", Key: projection.ByStream}
)
