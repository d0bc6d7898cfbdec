package bench

import (
	"time"

	"synclab/scenarios"
)

// Record is one measured value: one line of records.jsonl. Nothing in it is averaged.
type Record struct {
	// At is when the value was taken, in seconds since the repetition began.
	At       float64 `json:"at"`
	Scenario string  `json:"scenario"`
	Subject  string  `json:"subject"`
	// Services and Endpoints are the cell's size: Services of the shape, and (mean) endpoints per Service.
	Services  int     `json:"services"`
	Endpoints float64 `json:"endpoints"`
	// Params are the values of the swept fields, e.g. {"proxy.minSyncPeriod": "1s"}.
	Params map[string]string `json:"params,omitempty"`
	// Rep is the repetition, from 1.
	Rep    int     `json:"rep"`
	Metric Metric  `json:"metric"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"` // s, B, or count

	Step   string `json:"step,omitempty"`   // "2:churn": index and kind of the step during which it was taken
	Sync   int    `json:"sync,omitempty"`   // sequence number of the sync it belongs to, from 1, within the repetition and family
	Kind   string `json:"kind,omitempty"`   // full or partial, of that sync
	Family string `json:"family,omitempty"` // IPv4 or IPv6
	Table  string `json:"table,omitempty"`  // nat or filter, of rules and chains
	// Position is the dispatch position of a first_packet: 1 is the first Service, -1 the miss, 0 an empty ruleset.
	Position *int `json:"position,omitempty"`
	// Target is the kind of destination of a first_packet that is no plain cluster IP: one of scenarios.Probe.Kinds. It has no
	// Position, but for 0: a packet of the kind's clients in the empty ruleset, to subtract.
	Target string `json:"target,omitempty"`
	// Method by which a first_packet was measured: empty or "sendto", or, of flows between namespaces, "handshake" (TCP SYN →
	// SYN-ACK), "echo" (UDP) and "established" (a packet of a flow that is known already).
	Method   string `json:"method,omitempty"`
	Protocol string `json:"protocol,omitempty"` // TCP or UDP, of a flow
	// Outcome of a flow: empty (answered by an endpoint that it may reach), refused, timeout, reset, or misrouted. Of an
	// added_waits "not yet": by the end of what was observed there was no answer, so Value is the least that it was.
	Outcome string `json:"outcome,omitempty"`
	Service string `json:"service,omitempty"` // "namespace/name:port", of flows, endpoints and violations
	// Fault that a record belongs to: the step's name and what was done, "5:fault flush nat".
	Fault     string `json:"fault,omitempty"`
	Invariant string `json:"invariant,omitempty"` // of a violation: I1 to I13
	Error     string `json:"error,omitempty"`     // of a sync that failed
	Bytes     int    `json:"bytes,omitempty"`     // given to the tool, of a shim_cost
	// Within is the uncertainty of a time that was read from the kernel: Value is the most that it was, and it may have been
	// so many seconds less. A reaction has one, and a network programming latency whose end only reading tells.
	Within float64 `json:"within,omitempty"`
}

// Metric names what a Record holds. Times are in seconds, sizes in bytes.
type Metric string

// The metrics, with the unit of each.
const (
	Load Metric = "load" // s: generate and load the cluster, and until the proxier's handlers have everything
	// FullSync and PartialSync are one sync, start to end, as the subject itself tells it. For all subjects alike, a sync
	// counts if it wrote rules (a restore, a transaction, a socket option) and succeeded. Others have no duration.
	// Health checks, metrics and the cleaning of stale flows are part of it, as kube-proxy counts.
	FullSync    Metric = "full_sync"    // s
	PartialSync Metric = "partial_sync" // s
	Queue       Metric = "queue"        // s: first change of a sync reported → sync starts
	Plan        Metric = "plan"         // s
	Encode      Metric = "encode"       // s
	Jumps       Metric = "jumps"        // s: base chains and jumps checked and made, in a full sync
	Written     Metric = "written"      // s: start of a sync → the kernel has everything; the rest of the sync is post-sync work
	Restore     Metric = "restore"      // s: wall time of what wrote the rules of one sync, added up: iptables-restore, nft, netlink transactions, socket options
	Restores    Metric = "restores"     // count: how many of them one sync took
	// RestoreRefused is one that failed within a sync that succeeded without it.
	RestoreRefused Metric = "restore_refused" // s
	// ToolUser and ToolSys are of the tools of one sync. Of a subject that speaks to the kernel itself, ToolSys is the
	// wall time of its system calls, and ToolUser what its thread computed beside them.
	ToolUser Metric = "tool_user" // s: user time
	ToolSys  Metric = "tool_sys"  // s: system time, the kernel's part
	// ChangeSynced is one changed EndpointSlice: due in the cluster → rules of the sync that took it written, as a subject in the lab's own
	// process tells it.
	ChangeSynced Metric = "change_synced" // s
	// NetworkProgrammingLatency is one change: due in the cluster → visible in the kernel.
	NetworkProgrammingLatency Metric = "network_programming_latency" // s
	// Reaction is one isolated change, which nothing held back: due in the cluster → visible in the kernel. The subject had
	// converged and idled for longer than minSyncPeriod.
	Reaction        Metric = "reaction"          // s
	FirstPacket     Metric = "first_packet"      // s: one sendto of a fresh flow
	Rules           Metric = "rules"             // count, by table: installed after a sync, own rules
	RulesKernel     Metric = "rules_kernel"      // count, by table: as the kernel counts, at a settle
	RulesClosedForm Metric = "rules_closed_form" // count, by table: what the closed form says
	Chains          Metric = "chains"            // count, by table
	RestoreBytes    Metric = "restore_bytes"     // B: sent by one sync
	PeakRSS         Metric = "peak_rss"          // B: of the subject's process; with FeedInformers that is the lab's, simulated cluster included
	ChildPeakRSS    Metric = "child_peak_rss"    // B: the largest tool of one sync
	KernelMemory    Metric = "kernel_memory"     // B: slab and vmalloc growth over the ruleset, where it can be read
	Backlog         Metric = "backlog"           // count: changes reported and not yet installed, when a sync starts
	Changes         Metric = "changes"           // count: changes one sync took
	SyncFailed      Metric = "sync_failed"       // count: 1 for each sync that failed
	// SyncsNotSeparable is how many syncs ended between two readings of a subject's metrics, which tell only of all of them
	// together: no durations and tools of single ones are recorded. Its Kind is empty where there were several.
	SyncsNotSeparable Metric = "syncs_not_separable" // count

	// Of subjects that run as processes of their own (Run.Feed "api"), seen from outside.

	ColdStart  Metric = "cold_start"  // s: the subject starts, its process with FeedAPI → every Service of the cluster is visible in the kernel
	SubjectCPU Metric = "subject_cpu" // s: user and system time of the subject and its children, during one step, without the shim's own
	Played     Metric = "played"      // count: changes made by one step
	ToolCalls  Metric = "tool_calls"  // count: iptables and nft commands of one sync
	ShimCost   Metric = "shim_cost"   // s: what measuring adds to one call of a tool that is given so many Bytes
	// ChangeUndone is a change that another one took back before the kernel was seen with it: due → known to be so. It is no
	// network programming latency, since nothing had to be written.
	ChangeUndone Metric = "change_undone" // s

	// Of packets and of faults.

	RulesCrossed Metric = "rules_crossed" // count: rules that the first packet to a Position or Target crosses, by the rule interpreter, over the rules in the kernel
	Flow         Metric = "flow"          // s: one new flow of the stream: due → answer, or due → Outcome
	// HeldFlow is one packet of a flow that was there before the changes: sent → answered, or Outcome. Of those that were
	// answered as ever, one of eight is recorded.
	HeldFlow Metric = "held_flow" // s
	// RemovedServed is how long an endpoint that was removed still got new flows: due time of its removal → last answer from it.
	// Of Method "held": how long a UDP flow that is held stayed with it: due time → first answer from another one.
	RemovedServed Metric = "removed_served" // s
	AddedWaits    Metric = "added_waits"    // s: due time of a new endpoint → the first answer from it, where the stream sends to its Service; or Outcome
	// FlowsUnwatched is how many flows and packets nothing is known of: the stream itself had no CPU when they were to be given up.
	FlowsUnwatched Metric = "flows_unwatched" // count
	FaultBegun     Metric = "fault_begun"     // s: how long the fault holds, by plan; 0: done at once. At is its moment
	FaultDetected  Metric = "fault_detected"  // s: fault → the subject's first sync or command that answers it
	// FaultRepaired is until everything is in the kernel as it should be that the fault took away or could be in the way of:
	// fault → then, where it took something away; its end → the changes made before are visible, where it shows only in these.
	// Of dropped watches: how long the first change waited that came afterwards. Of what meets changes one by one (references,
	// events repeated or swapped): how long one of these waited at most.
	FaultRepaired Metric = "fault_repaired" // s
	Violation     Metric = "violation"      // count: 1 for each violated Invariant; Error says what was wrong and how to see it again
	Checked       Metric = "checked"        // count: what was looked at for one Invariant
	// Exceeded says that the subject was stopped because it exceeded a budget: Value is what it had used, of unit s or B,
	// or how many rules it could write at most (count), and Error what was exceeded and how far the subject had come.
	Exceeded Metric = "exceeded"
)

// How objects reach a subject, as in Run.Feed.
const (
	FeedInformers = "informers" // through the fake clientset's informers, in the lab's process
	FeedAPI       = "api"       // through the API front over HTTP; the subject is a process of its own
)

// ObservedKernel is Run.Observed of runs that are measured in the kernel.
const ObservedKernel = "kernel"

// Run is run.json: what was run, on what.
type Run struct {
	ID       string     `json:"id"`
	Started  time.Time  `json:"started"`
	Finished *time.Time `json:"finished,omitempty"`
	// Status is running, complete, interrupted or failed.
	Status   string             `json:"status"`
	Reason   string             `json:"reason,omitempty"`
	Command  string             `json:"command"` // the command line that makes this run again
	Scenario scenarios.Scenario `json:"scenario"`
	Subjects []string           `json:"subjects"`
	Reps     int                `json:"reps"` // of the cell with the most, where Precision was asked for
	// Precision is how near to its value the interval of a ratio had to come, as a share, before its cell was repeated no
	// more; 0: a number of repetitions was asked for.
	Precision float64 `json:"precision,omitempty"`
	Seed      uint64  `json:"seed"`
	// Feed is how objects reached the subjects: FeedInformers or FeedAPI. Empty: FeedInformers.
	Feed string `json:"feed,omitempty"`
	// Observed is ObservedKernel: changes are visible, and subjects in sync, when the kernel shows it. Runs with FeedInformers
	// that lack it took the subject's word: their network_programming_latency is change_synced.
	Observed string   `json:"observed,omitempty"`
	Versions Versions `json:"versions"`
	Machine  Machine  `json:"machine"`
	// Pace of the machine before a calibration; nil of other runs.
	Pace *Pace `json:"pace,omitempty"`
	// Shard is which part of a sweep this run is; nil: all of it.
	Shard *Shard `json:"shard,omitempty"`
}

// Versions of everything a number depends on. Empty: not there.
type Versions struct {
	Synclab        string `json:"synclab"`
	Go             string `json:"go"`
	Kernel         string `json:"kernel"`
	IPTablesLegacy string `json:"iptablesLegacy,omitempty"`
	IPTablesNft    string `json:"iptablesNft,omitempty"`
	Nft            string `json:"nft,omitempty"`
	KubeProxy      string `json:"kubeProxy,omitempty"`
}

// Machine the run was made on.
type Machine struct {
	OS          string `json:"os"`
	CPU         string `json:"cpu"`
	CPUs        int    `json:"cpus"`
	MemoryBytes uint64 `json:"memoryBytes"`
	// UserNamespace is true when the run was not root and made a user namespace of its own.
	UserNamespace bool `json:"userNamespace"`
}
