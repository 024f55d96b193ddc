package crash

// A producer publishes.
var (
	PublishChecked  = declare("publish.checked", "messages are valid, and nothing is sent")
	PublishSent     = declare("publish.sent", "messages are handed to the connection, and not answered; by the relay, too")
	PublishAnswered = declare("publish.answered", "the broker has all of them, and the caller does not know")
)

// The owner of a shard receives, gathers, stores and acknowledges.
var (
	ReceiveReset   = declare("receive.reset", "the consumer of the shard is back at its ack floor, and nothing is asked for")
	ReceiveArrived = declare("receive.arrived", "a message has come, and is in no window")
	WindowJoined   = declare("window.joined", "a message is on its way into a window")
	WindowClosed   = declare("window.closed", "windows are closed, and nothing of them is stored")
	WindowStored   = declare("window.stored", "their facts are committed, and none is acknowledged")
	AckSent        = declare("ack.sent", "one message of a window is acknowledged, others are not")
	AckDone        = declare("ack.done", "all of a window are acknowledged, and the next is not begun")
)

// An append, of facts and of decisions.
var (
	AppendChecked   = declare("append.checked", "an append is valid and nobody has it")
	AppendGrouped   = declare("append.grouped", "a leader has taken a group of appends, and sent nothing")
	AppendPlanned   = declare("append.planned", "a group is planned from remembered heads, and not sent")
	AppendHeld      = declare("append.held", "the streams are locked and read, and nothing is planned")
	AppendInserted  = declare("append.inserted", "events are inserted, and not committed")
	AppendFolded    = declare("append.folded", "inline views are folded with them, and not committed")
	AppendCommitted = declare("append.committed", "events are committed, and nobody is told")
	AppendAnswered  = declare("append.answered", "the callers of a group are told, and the horizon is not poked")
	AppendReturned  = declare("append.returned", "an append is done, and its caller does not know")
	HorizonMoved    = declare("horizon.moved", "the horizon is known to be higher, and nobody is woken")
)

// A projection applies.
var (
	ApplyRead       = declare("apply.read", "a page of the log is read, and nothing is begun")
	ApplyFenced     = declare("apply.fenced", "the lease is held, rows are read, and nothing is folded")
	ApplyFolded     = declare("apply.folded", "events are folded or handled, rows and checkpoint are not sent")
	ApplyWritten    = declare("apply.written", "rows and checkpoint are written, and not committed")
	ApplyCommitted  = declare("apply.committed", "they are committed, and the worker does not know")
	CheckpointMoved = declare("checkpoint.moved", "the checkpoints of quiet shards have moved, and the worker does not know")
	RewindRead      = declare("rewind.read", "what a rewind begins with is read, and nothing is replayed")
	RewindFolded    = declare("rewind.folded", "rows are folded again, and not written")
)

// Leases go from one owner to another.
var (
	LeaseJoined   = declare("lease.joined", "the first heartbeat is heard, and nothing is claimed")
	LeaseClaiming = declare("lease.claiming", "leases are taken, and not committed")
	LeaseClaimed  = declare("lease.claimed", "leases are ours, and nobody works on them")
	LeaseBegun    = declare("lease.begun", "one part of the work on a lease has begun, others have not")
	LeaseDraining = declare("lease.draining", "what works on a lease is told to end, and has not")
	LeaseDrained  = declare("lease.drained", "the work on a lease has ended, and it is not given back")
	LeaseGiven    = declare("lease.given", "a lease is given back, and we do not know")
	StopDrained   = declare("stop.drained", "a clean stop has ended all work, and given nothing back")
	StopLeft      = declare("stop.left", "a clean stop has given everything back, and the process has not ended")
)

// A view is rebuilt.
var (
	RebuildBegun   = declare("rebuild.begun", "a rebuild is noted, and nothing is folded")
	RebuildCopied  = declare("rebuild.copied", "rows of an edition are copied, and not committed")
	RebuildFollow  = declare("rebuild.followed", "an edition is where its view is, and not checked")
	RebuildChecked = declare("rebuild.checked", "an edition is checked, and the swap is not begun")
	RebuildMerged  = declare("rebuild.merged", "an edition is in the place of the one that serves, and not committed")
	RebuildSwapped = declare("rebuild.swapped", "the swap is committed, and the caller does not know")
)

// Committed events go to other services.
var (
	RelayRead       = declare("relay.read", "a page of the log is read, and nothing is published")
	RelayPublished  = declare("relay.published", "the broker has the page, and no checkpoint has moved")
	RelayMarking    = declare("relay.marking", "the checkpoints of the relay are written, and not committed")
	RelayMarked     = declare("relay.marked", "they are committed, and the relay does not know")
	HandleNoted     = declare("handle.noted", "it is noted that an event was handled, and it is not handled")
	HandleActed     = declare("handle.acted", "an event is handled, and not committed")
	HandleCommitted = declare("handle.committed", "an event is handled and committed, and not acknowledged")
	HandleAcked     = declare("handle.acked", "it is acknowledged, and the next of its stream is not begun")
)
