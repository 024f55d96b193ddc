package main

import "github.com/weir-es/weir/internal/crash"

// spot is a point, and what it takes that somebody dies there.
type spot struct {
	point *crash.Point
	most  int // the seed draws at which passing, from 1 on
	who   victim
	how   means
}

// victim is which process has to die.
type victim string

const (
	anyInstance victim = ""
	theHandler  victim = "handler" // the instance that handles what is relayed
	someFeeder  victim = "feeder"
)

// means is what brings a process to a point.
type means string

const (
	byLoad      means = ""          // it comes by
	byNeighbour means = "neighbour" // another instance is stopped cleanly and comes back
	byStart     means = "start"     // it is started
	byStop      means = "stop"      // it is stopped cleanly
	byRebuild   means = "rebuild"   // it is told to rebuild a view
)

// often is how many passings a death may wait for, where the load has many.
const often = 8

// special are the spots that need more than load.
var special = map[*crash.Point]spot{
	crash.PublishChecked:  {most: often, who: someFeeder},
	crash.PublishSent:     {most: often, who: someFeeder},
	crash.PublishAnswered: {most: often, who: someFeeder},
	crash.ReceiveReset:    {most: 3, how: byNeighbour},
	crash.CheckpointMoved: {most: 2},
	crash.LeaseJoined:     {most: 1, how: byStart},
	crash.LeaseClaiming:   {most: 1, how: byNeighbour},
	crash.LeaseClaimed:    {most: 2, how: byNeighbour},
	crash.LeaseBegun:      {most: 2, how: byNeighbour},
	crash.LeaseDraining:   {most: 2, how: byNeighbour},
	crash.LeaseDrained:    {most: 2, how: byNeighbour},
	crash.LeaseGiven:      {most: 2, how: byNeighbour},
	crash.StopDrained:     {most: 1, how: byStop},
	crash.StopLeft:        {most: 1, how: byStop},
	crash.RebuildBegun:    {most: 1, how: byRebuild},
	crash.RebuildCopied:   {most: 1, how: byRebuild},
	crash.RebuildFollow:   {most: 1, how: byRebuild},
	crash.RebuildChecked:  {most: 1, how: byRebuild},
	crash.RebuildMerged:   {most: 1, how: byRebuild},
	crash.RebuildSwapped:  {most: 1, how: byRebuild},
	crash.HandleNoted:     {most: often, who: theHandler},
	crash.HandleActed:     {most: often, who: theHandler},
	crash.HandleCommitted: {most: often, who: theHandler},
	crash.HandleAcked:     {most: often, who: theHandler},
}

// spots are all points, and the one that two kinds of processes pass a second time.
func spots() (all []spot) {
	for _, p := range crash.Points() {
		one, known := special[p]
		if !known {
			one = spot{most: often}
		}
		one.point = p
		all = append(all, one)
	}
	return append(all, spot{point: crash.PublishSent, most: often})
}

// late says whether the view of balances has to be folded like any other: appends have
// other steps where something is folded with them.
func (p spot) late() bool { return p.point != crash.AppendInserted && p.point != crash.AppendFolded }

func (p spot) String() string {
	if p.point == crash.PublishSent && p.who == anyInstance {
		return p.point.String() + " by the relay"
	}
	return p.point.String()
}
