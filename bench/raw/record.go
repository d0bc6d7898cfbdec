package raw

import (
	"fmt"
	"math"
	"time"

	"synclab/scenarios"
)

// Record is one measured value: one line of records.jsonl. Nothing in it is averaged.
type Record struct {
	// At is the time of the value, in seconds since the repetition began.
	At       float64 `json:"at"`
	Scenario string  `json:"scenario"`
	Subject  string  `json:"subject"`
	// Services and Endpoints are the cell's size: the shape's Services, and the (mean) endpoints per Service.
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
	Sync   int    `json:"sync,omitempty"`   // sequence number of its sync, from 1, within the repetition and family
	Kind   string `json:"kind,omitempty"`   // full or partial, of that sync
	Family string `json:"family,omitempty"` // IPv4 or IPv6
	Table  string `json:"table,omitempty"`  // nat or filter, of rules and chains
	// Position is the dispatch position of a first_packet: 1 is the first Service, -1 the miss, 0 an empty ruleset.
	Position *int `json:"position,omitempty"`
	// Target is the kind of destination of a first_packet if it is no plain cluster IP: one of scenarios.Probe.Kinds. It
	// has no Position except 0: a packet of the kind's clients in the empty ruleset, to subtract.
	Target string `json:"target,omitempty"`
	// Method of a first_packet: empty or "sendto" (UDP); MethodConnect (TCP); for flows between namespaces "handshake" (TCP SYN → SYN-ACK), "echo"
	// (UDP) and "established" (a packet of a flow that conntrack has already). ByPackets: of a change or a start that no
	// rule showed.
	Method   string `json:"method,omitempty"`
	Protocol string `json:"protocol,omitempty"` // TCP or UDP, of a flow
	// Outcome of a flow: empty (answered by an endpoint that it may reach), refused, timeout, reset, or misrouted. For
	// new_endpoint_delay also "not yet": no answer by the end of the observation, so Value is a lower bound.
	Outcome string `json:"outcome,omitempty"`
	Service string `json:"service,omitempty"` // "namespace/name:port", of flows, endpoints and violations
	// Fault that a record belongs to: the step's name and the fault, "5:fault flush nat".
	Fault     string `json:"fault,omitempty"`
	Task      string `json:"task,omitempty"`      // that the kernel named in a kernel_stall
	Invariant string `json:"invariant,omitempty"` // of a violation: I1 to I14
	Error     string `json:"error,omitempty"`     // of a sync that failed
	Bytes     int    `json:"bytes,omitempty"`     // given to the tool, of a shim_cost
	Share     int    `json:"share,omitempty"`     // percent of the Services, of a cold_start_share
	File      string `json:"file,omitempty"`      // in ProfilesFolder, of profile_samples and tool_input
	After     string `json:"after,omitempty"`     // the subject before, of a turn
	// Uncertainty, in seconds, is that of a time that was read from the kernel: Value is the upper bound, and
	// Value - Uncertainty the lower one. A reaction has it, a cold start and its shares, and a network programming latency
	// whose end only reading shows.
	Uncertainty float64 `json:"uncertainty,omitempty"`
}

// Bounds of what a record may say. They are far above what a machine can measure, and far below what makes an axis or a
// loop over repetitions endless.
const (
	mostValue  = 1e15  // bytes, seconds or a count
	leastValue = 1e-12 // smaller ones are 0: clocks count nanoseconds, and differences of floats leave less
	mostCount  = 1e9   // Services, endpoints, syncs; seconds since the repetition began
	mostReps   = 1e6
)

// check reports a value that nothing can have measured.
func (r *Record) check() error {
	within := func(v, most float64) bool { return math.Abs(v) <= most } // not if v is NaN
	if within(r.Value, leastValue) {
		r.Value = 0
	}
	switch {
	case !within(r.Value, mostValue), !within(r.Uncertainty, mostValue):
		return fmt.Errorf("metric %s: value %g, uncertainty %g: no measured value is beyond %g", r.Metric, r.Value, r.Uncertainty, mostValue)
	case !within(r.At, mostCount), !within(r.Endpoints, mostCount), !within(float64(r.Services), mostCount), !within(float64(r.Sync), mostCount),
		!within(float64(r.Bytes), mostValue), !within(float64(r.Share), 100), r.Position != nil && !within(float64(*r.Position), mostCount):
		return fmt.Errorf("metric %s: at %g s, %d Services, %g endpoints, sync %d, %d bytes, share %d: one of them is beyond what a run can have",
			r.Metric, r.At, r.Services, r.Endpoints, r.Sync, r.Bytes, r.Share)
	case r.Services < 0, r.Endpoints < 0, r.Rep < 0, r.Rep > mostReps:
		return fmt.Errorf("metric %s: %d Services, %g endpoints, repetition %d: want numbers from 0, and at most %.0f repetitions", r.Metric, r.Services, r.Endpoints, r.Rep, mostReps)
	}
	return nil
}

// MethodConnect is the Method of a first_packet that is the SYN of a connect(2), where the cluster has no UDP Services. It
// costs more than a sendto(2): values of both are never compared.
const MethodConnect = "connect"

// TooBusy is the Outcome of packets that had no answer at a moment when packets that bypass the rules had none either.
const TooBusy = "machine too busy"

// ByPackets is the Method of times that new flows to the Services showed, because no rules of the subject are known.
const ByPackets = "packets"

// Metric is the name of a Record's value. Times are in seconds, sizes in bytes.
type Metric string

// The metrics, with the unit of each.
const (
	Load Metric = "load" // s: generate and load the cluster, until the proxier's handlers have all objects
	// Turn is the place of this subject among those of its repetition, from 1; After names the one that ran before it.
	Turn Metric = "turn" // count
	// FullSync and PartialSync are one sync, from start to end, as the subject reports it. For all subjects, a sync
	// counts if it wrote rules (a restore, a transaction, a socket option) and succeeded. Others have no duration.
	// Health checks, metrics and the cleaning of stale flows are part of the sync, as in kube-proxy.
	FullSync    Metric = "full_sync"    // s
	PartialSync Metric = "partial_sync" // s
	Queue       Metric = "queue"        // s: first change of a sync reported → sync starts
	Plan        Metric = "plan"         // s
	Encode      Metric = "encode"       // s
	Jumps       Metric = "jumps"        // s: check and write base chains and jumps, in a full sync
	Written     Metric = "written"      // s: start of a sync → the kernel has everything; then comes post-sync work
	Restore     Metric = "restore"      // s: wall time of all writes of rules in one sync
	Restores    Metric = "restores"     // count: number of writes in one sync
	// RestoreRefused is the time of a failed write within a sync that succeeded without it.
	RestoreRefused Metric = "restore_refused" // s
	// ToolUser and ToolSys are the CPU times of the tools of one sync. For a subject without tools, ToolSys is the wall
	// time of its system calls, and ToolUser the time that its thread computed besides.
	ToolUser Metric = "tool_user" // s: user time
	ToolSys  Metric = "tool_sys"  // s: system time, that is, the kernel's share
	// ChangeSynced is one changed EndpointSlice: due in the cluster → written by its sync. A subject in the lab's own
	// process reports it.
	ChangeSynced Metric = "change_synced" // s
	// NetworkProgrammingLatency is one change: due in the cluster → visible in the kernel.
	NetworkProgrammingLatency Metric = "network_programming_latency" // s
	// Reaction is one isolated change without any wait: due in the cluster → visible in the kernel. The subject had
	// converged and idled for longer than minSyncPeriod.
	Reaction      Metric = "reaction"       // s
	FirstPacket   Metric = "first_packet"   // s: the system call that sends the first packet of a fresh flow
	Rules         Metric = "rules"          // count, by table: installed after a sync, own rules
	RulesKernel   Metric = "rules_kernel"   // count, by table: as the kernel counts, at a settle
	RulesExpected Metric = "rules_expected" // count, by table: predicted by the closed form
	Chains        Metric = "chains"         // count, by table
	RestoreBytes  Metric = "restore_bytes"  // B: sent by one sync
	PeakRSS       Metric = "peak_rss"       // B: of the subject's process; with FeedInformers of the lab's process
	LabPeakRSS    Metric = "lab_peak_rss"   // B: of the lab's own process, with the cluster and the fake API server; with FeedAPI
	ChildPeakRSS  Metric = "child_peak_rss" // B: the largest tool of one sync
	KernelMemory  Metric = "kernel_memory"  // B: slab and vmalloc growth over the ruleset, where it can be read
	Backlog       Metric = "backlog"        // count: changes reported and not yet installed, when a sync starts
	Changes       Metric = "changes"        // count: changes one sync took
	SyncFailed    Metric = "sync_failed"    // count: 1 for each sync that failed
	// SyncsNotSeparable is how many syncs ended between two readings of a subject's metrics. Metrics report only their
	// sum, so these syncs have no durations or tools. Kind is empty if there were several kinds.
	SyncsNotSeparable Metric = "syncs_not_separable" // count

	// Only for subjects that are separate processes (Run.Feed "api"), seen from outside.

	ColdStartShare Metric = "cold_start_share" // s: the same start → Share percent of the Services are visible, at the latest
	ColdStart      Metric = "cold_start"       // s: start of the subject (of its process with FeedAPI) → every Service is visible
	SubjectCPU     Metric = "subject_cpu"      // s: user and system time of the subject and its children in one step, without the shim's and that of readings
	LabCPU         Metric = "lab_cpu"          // s: user and system time of the lab's own process in that step; with FeedAPI
	ChangesApplied Metric = "changes_applied"  // count: changes applied by one step
	ToolCalls      Metric = "tool_calls"       // count: iptables and nft commands of one sync
	ShimCost       Metric = "shim_cost"        // s: time that the shim adds to a call of a tool with so many Bytes of input
	ReadingCost    Metric = "reading_cost"     // s: CPU time that one reading of its metrics costs the subject; not in SubjectCPU
	// ChangeReverted is a change that another one reverted before the kernel was seen with it: due → known to be reverted.
	// It is no network programming latency, since nothing had to be written.
	ChangeReverted Metric = "change_reverted" // s

	// Metrics of packets and of faults.

	RulesEvaluated Metric = "rules_evaluated" // count: rules that the first packet to a target crosses, by the ruleset evaluator
	Flow           Metric = "flow"            // s: one new flow of the stream: due → answer, or due → Outcome
	// LongLivedFlow is one packet of a long-lived flow, which began before the changes: sent → answered, or Outcome. Of
	// packets with an unchanged endpoint, one in eight is recorded.
	LongLivedFlow Metric = "long_lived_flow" // s
	// RemovedEndpointServing is how long a removed endpoint still got new flows: due time of its removal → last answer from it.
	// With Method "long-lived": how long a long-lived UDP flow stayed with it: due time → first answer from another one.
	RemovedEndpointServing Metric = "removed_endpoint_serving" // s
	NewEndpointDelay       Metric = "new_endpoint_delay"       // s: due time of a new endpoint → its first answer, if flows are sent; or Outcome
	// Reachable is when packets notice a change: due → end of the first new flow to the Service's cluster IP that an added
	// endpoint answers. Unreachable: due → start of the last new flow that a removed endpoint answers. They need no
	// knowledge of the subject's rules. Both are as exact as the flows to that Service are frequent.
	Reachable   Metric = "reachable"   // s
	Unreachable Metric = "unreachable" // s
	// The same moments, counted from the one when the kernel's tables showed the change; negative: before it.
	ReachableAfterVisible   Metric = "reachable_after_visible"   // s
	UnreachableAfterVisible Metric = "unreachable_after_visible" // s
	// Move is how long one proxier took to replace another: SIGTERM → every Service is in the tables of the second
	// one, Kind. LeftBehind is how much of the first one is in the kernel when the second one has converged: Table says of what. It
	// counts what was there before and is nothing that the second one uses.
	Move       Metric = "move"        // s
	LeftBehind Metric = "left_behind" // count
	// MoveSettled is how long it took until the second one had converged: the same begin → nothing left to do.
	MoveSettled Metric = "move_settled" // s
	// BehaviourDiffers is the number of Services that the two proxiers treat differently, in the way that Table names
	// (subject.Behaviours).
	BehaviourDiffers Metric = "behaviour_differs" // count
	// PacketVerdict is how many endpoints answered packets from Method (pod, node, outside) to one address of a Service:
	// Target is its kind, Outcome how the packets ended. Error: endpoints that the Service does not have, or a loop. Kind
	// is a behaviour that may make subjects differ: local-without-endpoint if the traffic policy Local allows no endpoint,
	// as other nodes have them all; cluster-ip-on-node for a port of an external address that no Service has.
	PacketVerdict Metric = "packet_verdict" // count
	// FlowsUnobserved is the number of unobserved flows and packets: the stream itself had no CPU at their timeout.
	FlowsUnobserved Metric = "flows_unobserved" // count
	// ControlFailure is a flow that timed out together with a control flow straight to an endpoint: due → timeout.
	ControlFailure Metric = "control_failure" // s
	FaultDuration  Metric = "fault_duration"  // s: planned duration of the fault; 0: instant. At is its start
	FaultDetected  Metric = "fault_detected"  // s: fault → the end of the subject's first sync or command that answers it, which began Uncertainty before; none if a change may have caused that sync
	// FaultRepaired is the time until the kernel again has everything that the fault removed or delayed. For removed
	// objects it counts from the fault. Otherwise it counts from the fault's end until all earlier changes are visible.
	// For dropped watches, it is how long the first later change waited. For faults that delay changes one by one
	// (references, events duplicated or reordered), it is the longest delay.
	FaultRepaired   Metric = "fault_repaired"   // s
	Violation       Metric = "violation"        // count of violations of Invariant; Error has details and how to reproduce
	InvariantChecks Metric = "invariant_checks" // count: number of checks of one Invariant
	// KernelStall is a stall that the kernel logged: how long a task had been stuck, or 0 where the kernel does not say.
	// Kind is one of package machine's, Error the message. The log is the machine's, so another process may be the cause.
	// KernelStalls is the number of stalls of a repetition. StallsUnobserved: the log could not be read; Error says why.
	KernelStall      Metric = "kernel_stall"      // s
	KernelStalls     Metric = "kernel_stalls"     // count
	StallsUnobserved Metric = "stalls_unobserved" // count
	// ProfileSamples is the number of samples in a profile, File. ProfileLost is the number of samples that were lost.
	ProfileSamples Metric = "profile_samples" // count
	ProfileLost    Metric = "profile_lost"    // count
	// ProfiledSyncs is the number of syncs of a Kind whose times are known, so that samples are filed under that kind.
	// Kind "cold start" is the time until every Service is visible.
	ProfiledSyncs Metric = "profiled_syncs" // count
	// ToolInput is one call of a tool, Method, whose standard input is in File: its duration.
	ToolInput Metric = "tool_input" // s
	// Exceeded reports that the subject was stopped because it exceeded a budget. Value is what it had used, with unit s
	// or B, or the largest number of rules that it could write (count). Error has the budget and how far the subject had
	// come.
	Exceeded Metric = "exceeded"
)

// OfJourney reports whether a value belongs to a repetition as a whole, even if it moves from one subject to another:
// values of packets and of moves. Other records name the subject that ran.
func (m Metric) OfJourney() bool {
	switch m {
	case Flow, LongLivedFlow, RemovedEndpointServing, NewEndpointDelay, Reachable, Unreachable, ReachableAfterVisible, UnreachableAfterVisible,
		FlowsUnobserved, ControlFailure, Move, MoveSettled, LeftBehind, BehaviourDiffers:
		return true
	}
	return false
}

// How objects reach a subject, as in Run.Feed.
const (
	FeedInformers = "informers" // through the fake clientset's informers, in the lab's process
	FeedAPI       = "api"       // through the fake API server over HTTP; the subject is a separate process
)

// ObservedKernel is Run.Observed of runs that are measured in the kernel.
const ObservedKernel = "kernel"

// Run is run.json: what was run, and on which machine.
type Run struct {
	// Format of the folder: Format of the program that wrote it. 0: of before formats were numbered.
	Format   int        `json:"format,omitempty"`
	ID       string     `json:"id"`
	Started  time.Time  `json:"started"`
	Finished *time.Time `json:"finished,omitempty"`
	// Status is running, complete, interrupted or failed.
	Status   string             `json:"status"`
	Reason   string             `json:"reason,omitempty"`
	Command  string             `json:"command"` // the command line that repeats this run
	Scenario scenarios.Scenario `json:"scenario"`
	Subjects []string           `json:"subjects"`
	Reps     int                `json:"reps"` // with Precision: of the cell with the most
	// Precision is how narrow the interval of a ratio had to be, as a share of its value, before its cell was not
	// repeated any more; 0: a fixed number of repetitions.
	Precision float64 `json:"precision,omitempty"`
	Seed      uint64  `json:"seed"`
	// Feed is how objects reached the subjects: FeedInformers or FeedAPI. Empty: FeedInformers.
	Feed string `json:"feed,omitempty"`
	// ExecEnv are the names of the variables that exec subjects got by --exec-env.
	ExecEnv []string `json:"execEnv,omitempty"`
	// Observed is ObservedKernel: the kernel shows when changes are visible and subjects have converged. Runs with
	// FeedInformers without it rely on the subject's report: their network_programming_latency is change_synced.
	Observed string   `json:"observed,omitempty"`
	Versions Versions `json:"versions"`
	Machine  Machine  `json:"machine"`
	// Kernels are the releases of the kernels that cells ran on, by the value of KernelField. Empty: all on the machine's.
	Kernels map[string]string `json:"kernels,omitempty"`
	// Programs are the digests of the programs that were started besides Synclab's own, by the names of their subjects,
	// "shim" and "kernel VERSION", and of what single subjects have: "+config:NAME" and "+tools:NAME".
	Programs map[string]string `json:"programs,omitempty"`
	// LeftOut has a remark on each step that the given objects did not allow, or only on a smaller scale.
	LeftOut []string `json:"leftOut,omitempty"`
	// Records are the records that the run wrote until it ended; nil: it was killed, or has no Format.
	Records *Contents `json:"records,omitempty"`
	// Shard is the part of a sweep that this run is; nil: the whole sweep.
	Shard *Shard `json:"shard,omitempty"`
}

// Format is the format of run folders that this program writes. It reads that and all earlier ones.
const Format = FormatOwnChanges

// FormatOwnChanges is the first format whose repetitions each have their own changes (world.World.Repetition). Before,
// all had those of the first one.
const FormatOwnChanges = 2

// Contents says which records a file had when it was written.
type Contents struct {
	Lines  int    `json:"lines"`
	SHA256 string `json:"sha256"` // of the lines
}

// KernelField is the swept value (Record.Params) that names a cell's kernel: HostKernel, or the version of a User-mode
// Linux kernel. Cells without it ran on the machine's kernel.
const (
	KernelField = "kernel"
	HostKernel  = "host"
)

// ProfileField is the swept value that says whether a cell was measured while perf took samples: ProfileOn or ProfileOff.
// Cells without it ran without.
const (
	ProfileField = "profile"
	ProfileOn    = "on"
	ProfileOff   = "off"
)

// PlanSizeField is the swept value that names the size of a plan's cell: its number of Services.
const PlanSizeField = "plan.size"

// ProfilesFolder is the folder of a run's profiles, in the format of pprof.
const ProfilesFolder = "profiles"

// Versions of everything that affects results. Empty: missing.
type Versions struct {
	Synclab        string `json:"synclab"`
	Go             string `json:"go"`
	Kernel         string `json:"kernel"`
	IPTablesLegacy string `json:"iptablesLegacy,omitempty"`
	IPTablesNft    string `json:"iptablesNft,omitempty"`
	Nft            string `json:"nft,omitempty"`
	KubeProxy      string `json:"kubeProxy,omitempty"`
	Cilium         string `json:"cilium,omitempty"`
}

// Machine that the run used.
type Machine struct {
	OS          string `json:"os"`
	CPU         string `json:"cpu"`
	CPUs        int    `json:"cpus"`
	MemoryBytes uint64 `json:"memoryBytes"`
	// UserNamespace is true if the run was not root and made a user namespace.
	UserNamespace bool `json:"userNamespace"`
}
