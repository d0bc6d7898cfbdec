package raw

import "strings"

// Metric is the name of a Record's value. Times are in seconds, sizes in bytes.
type Metric string

// Row describes a metric.
type Row struct {
	Metric Metric
	Unit   string // s, B, count or ratio; empty: each record has its own
	Group  string // section of the tables
	Text   string // for readers
	// Journey: its values belong to a repetition as a whole, even if it moves from one subject to another. Others belong to
	// the subject that ran.
	Journey bool
}

// Groups of metrics, in the order of the tables.
const (
	GroupSyncs   = "Syncs and their phases"
	GroupChanges = "From a change to the kernel"
	GroupPackets = "First packet"
	GroupFlows   = "Flows during syncs"
	GroupFaults  = "Faults and invariants"
	GroupSizes   = "Rules, bytes and memory"
)

// Groups lists the groups in order.
var Groups = []string{GroupSyncs, GroupChanges, GroupPackets, GroupFlows, GroupFaults, GroupSizes}

// table has all metrics, in the order in which tables show them, and places the index of each.
var (
	table  []Row
	places = map[Metric]int{}
)

func add(r Row) Metric {
	places[r.Metric] = len(table)
	table = append(table, r)
	return r.Metric
}

func metric(name Metric, unit, group, text string) Metric {
	return add(Row{Metric: name, Unit: unit, Group: group, Text: text})
}

func ofJourney(name Metric, unit, group, text string) Metric {
	return add(Row{Metric: name, Unit: unit, Group: group, Text: text, Journey: true})
}

// Order returns the place of a metric in the tables. Unknown metrics come last.
func (m Metric) Order() int {
	if i, known := places[m]; known {
		return i
	}
	return len(table)
}

// Row returns the description of a metric. An unknown one keeps its name.
func (m Metric) Row() Row {
	if i := m.Order(); i < len(table) {
		return table[i]
	}
	return Row{Metric: m, Group: GroupSizes, Text: strings.ReplaceAll(string(m), "_", " ")}
}

// The metrics. A new one is a row here, and a call of Record where it is measured. A comment says from when until when a
// time is taken, and what a count counts.
var (
	// Reaction is one isolated change without any wait: due in the cluster → visible in the kernel. The subject had
	// converged and idled for longer than minSyncPeriod.
	Reaction = metric("reaction", "s", GroupSyncs, "reaction")
	// ColdStart: start of the subject (of its process with FeedAPI) → every Service is visible
	ColdStart = metric("cold_start", "s", GroupSyncs, "cold start")
	// ColdStartShare: the same start → Share percent of the Services are visible, at the latest
	ColdStartShare = metric("cold_start_share", "s", GroupSyncs, "cold start, until a share of the Services is visible")
	// FullSync and PartialSync are one sync, from start to end, as the subject reports it. For all subjects, a sync
	// counts if it wrote rules (a restore, a transaction, a socket option) and succeeded. Others have no duration.
	// Health checks, metrics and the cleaning of stale flows are part of the sync, as in kube-proxy.
	FullSync    = metric("full_sync", "s", GroupSyncs, "full sync")
	PartialSync = metric("partial_sync", "s", GroupSyncs, "partial sync")
	// Restore: wall time of all writes of rules in one sync
	Restore = metric("restore", "s", GroupSyncs, "writing the rules of a sync")
	// Restores: number of writes in one sync
	Restores = metric("restores", "count", GroupSyncs, "restores or transactions of a sync")
	// Listing: wall time of all commands of one sync that only read, such as nft list. A subject that reads over netlink has
	// none: then it is 0
	Listing = metric("listing", "s", GroupSyncs, "commands of a sync that read rules")
	Plan    = metric("plan", "s", GroupSyncs, "plan")
	Encode  = metric("encode", "s", GroupSyncs, "encode")
	// Jumps: check and write base chains and jumps, in a full sync
	Jumps = metric("jumps", "s", GroupSyncs, "jumps")
	// Written: start of a sync → the kernel has everything; then comes post-sync work
	Written = metric("written", "s", GroupSyncs, "from the start of a sync until the kernel has everything")
	// RestoreRefused is the time of a failed write within a sync that succeeded without it.
	RestoreRefused = metric("restore_refused", "s", GroupSyncs, "restores refused within a sync")
	// ToolUser and ToolSys are the CPU times of the tools of one sync. For a subject without tools, ToolSys is the wall
	// time of its system calls, and ToolUser the time that its thread computed besides.
	ToolUser = metric("tool_user", "s", GroupSyncs, "user time of tools, or between own system calls")
	ToolSys  = metric("tool_sys", "s", GroupSyncs, "kernel: system time of tools, or of own system calls")
	// Load: generate and load the cluster, until the proxier's handlers have all objects
	Load = metric("load", "s", GroupSyncs, "load")
	// SubjectCPU: user and system time of the subject and its children in one step, without the shim's and that of readings
	SubjectCPU = metric("subject_cpu", "s", GroupSyncs, "CPU time of the subject and its children in one step")
	// LabCPU: user and system time of the lab's own process in that step; with FeedAPI
	LabCPU = metric("lab_cpu", "s", GroupSyncs, "CPU time of the lab itself in one step")
	// ToolCalls: iptables and nft commands of one sync
	ToolCalls = metric("tool_calls", "count", GroupSyncs, "iptables and nft commands of a sync")
	// ShimCost: time that the shim adds to a call of a tool with so many Bytes of input
	ShimCost = metric("shim_cost", "s", GroupSyncs, "time that the shim adds to a command")
	// ReadingCost: CPU time that one reading of its metrics costs the subject; not in SubjectCPU
	ReadingCost = metric("reading_cost", "s", GroupSyncs, "CPU time of the subject for one reading of its metrics")
	// SyncsNotSeparable is how many syncs ended between two readings of a subject's metrics. Metrics report only their
	// sum, so these syncs have no durations or tools. Kind is empty if there were several kinds.
	SyncsNotSeparable = metric("syncs_not_separable", "count", GroupSyncs, "syncs without durations: they cannot be separated")
	// NetworkProgrammingLatency is one change: due in the cluster → visible in the kernel.
	NetworkProgrammingLatency = metric("network_programming_latency", "s", GroupChanges, "network programming latency")
	// ChangeSynced is one changed EndpointSlice: due in the cluster → written by its sync. A subject in the lab's own
	// process reports it.
	ChangeSynced = metric("change_synced", "s", GroupChanges, "change in the cluster → end of its sync")
	// ChangeReverted is a change that another one reverted before the kernel was seen with it: due → known to be reverted.
	// It is no network programming latency, since nothing had to be written.
	ChangeReverted = metric("change_reverted", "s", GroupChanges, "changes reverted before they were written")
	// Queue: first change of a sync reported → sync starts
	Queue = metric("queue", "s", GroupChanges, "queue")
	// Changes are those of one sync.
	Changes = metric("changes", "count", GroupChanges, "changes of a sync")
	// Backlog is the number of changes reported and not yet installed, when a sync starts
	Backlog = metric("backlog", "count", GroupChanges, "backlog at sync start")
	// SyncBusy is derived: the share of churn during which syncs ran, one value per repetition.
	SyncBusy = metric("sync_busy", "ratio", GroupChanges, "share of churn spent in syncs")
	// FirstPacket: the system call that sends the first packet of a fresh flow
	FirstPacket = metric("first_packet", "s", GroupPackets, "first packet")
	// RulesEvaluated: rules that the first packet to a target crosses, by the ruleset evaluator
	RulesEvaluated = metric("rules_evaluated", "count", GroupPackets, "rules evaluated for a first packet")
	// ConnectionsPerSecond is one turn of step connections: TCP connections of all clients together, each for a question and its
	// answer, that were completed, by the time until the last client ended. Position is the Service's in the dispatch; Target
	// TargetEndpoint: straight to a pod. Clients, node and pods share the machine's CPUs.
	ConnectionsPerSecond = metric("connections_per_second", "count", GroupPackets, "connections a second")
	// ConnectionCPU is the CPU time of such a turn for each connection, of both ends and of the node between them
	// (traffic.Looped). A connection to TargetEndpoint matches no dispatch rule: where these are a list, it crosses all.
	ConnectionCPU = metric("connection_cpu", "s", GroupPackets, "CPU time of a connection")
	// Throughput: bytes a second through one established connection, from the first one sent until the other end has read all
	Throughput = metric("throughput", "B", GroupPackets, "bytes a second through an established connection")
	// Flow: one new flow of the stream: due → answer, or due → Outcome
	Flow = ofJourney("flow", "s", GroupFlows, "new flow")
	// LongLivedFlow is one packet of a long-lived flow, which began before the changes: sent → answered, or Outcome. Of
	// packets with an unchanged endpoint, one in eight is recorded.
	LongLivedFlow = ofJourney("long_lived_flow", "s", GroupFlows, "packet of a long-lived flow")
	// RemovedEndpointServing is how long a removed endpoint still got new flows: due time of its removal → last answer from it.
	// With Method "long-lived": how long a long-lived UDP flow stayed with it: due time → first answer from another one.
	RemovedEndpointServing = ofJourney("removed_endpoint_serving", "s", GroupFlows, "serving time of a removed endpoint")
	// NewEndpointDelay: due time of a new endpoint → its first answer, if flows are sent; or Outcome
	NewEndpointDelay = ofJourney("new_endpoint_delay", "s", GroupFlows, "delay of a new endpoint")
	// PacketVerdict is how many endpoints answered packets from Method (pod, node, outside) to one address of a Service:
	// Target is its kind, Outcome how the packets ended. Error: endpoints that the Service does not have, or a loop. Kind
	// is a behaviour that may make subjects differ: local-without-endpoint if the traffic policy Local allows no endpoint,
	// as other nodes have them all; cluster-ip-on-node for a port of an external address that no Service has.
	PacketVerdict = metric("packet_verdict", "count", GroupFlows, "endpoints that answer at an address of a Service")
	// EndpointShare is how many connections an endpoint of a Service got, of 1,000 from a pod to its cluster IP.
	EndpointShare = metric("endpoint_share", "count", GroupFlows, "connections that an endpoint got, of 1,000")
	// Move is how long one proxier took to replace another: SIGTERM → every Service is in the tables of the second
	// one, Kind. LeftBehind is how much of the first one is in the kernel when the second one has converged: Table says of what. It
	// counts what was there before and is nothing that the second one uses.
	Move = ofJourney("move", "s", GroupFlows, "from the end of one proxier until the tables of the next have every Service")
	// MoveSettled is how long it took until the second one had converged: the same begin → nothing left to do.
	MoveSettled = ofJourney("move_settled", "s", GroupFlows, "from the end of one proxier until the next has converged")
	LeftBehind  = ofJourney("left_behind", "count", GroupFlows, "what a proxier left for the next one")
	// BehaviourDiffers is the number of Services that the two proxiers treat differently, in the way that Table names
	// (subject.Behaviours).
	BehaviourDiffers = ofJourney("behaviour_differs", "count", GroupFlows, "Services that the next proxier treats differently")
	// Reachable is when packets notice a change: due → end of the first new flow to the Service's cluster IP that an added
	// endpoint answers. Unreachable: due → start of the last new flow that a removed endpoint answers. They need no
	// knowledge of the subject's rules. Both are as exact as the flows to that Service are frequent.
	Reachable   = ofJourney("reachable", "s", GroupFlows, "change due → first packet to a new endpoint")
	Unreachable = ofJourney("unreachable", "s", GroupFlows, "change due → last packet to an old endpoint")
	// The same moments, counted from the one when the kernel's tables showed the change; negative: before it.
	ReachableAfterVisible   = ofJourney("reachable_after_visible", "s", GroupFlows, "first packet to a new endpoint, after the tables showed the change")
	UnreachableAfterVisible = ofJourney("unreachable_after_visible", "s", GroupFlows, "last packet to an old endpoint, after the tables showed the change")
	// FlowsUnobserved is the number of unobserved flows and packets: the stream itself had no CPU at their timeout.
	FlowsUnobserved = ofJourney("flows_unobserved", "count", GroupFlows, "unobserved flows")
	// ControlFailure is a flow that timed out together with a control flow straight to an endpoint: due → timeout.
	ControlFailure = ofJourney("control_failure", "s", GroupFlows, "flow that timed out together with flows past the rules")
	// FaultDuration: planned duration of the fault; 0: instant. At is its start
	FaultDuration = metric("fault_duration", "s", GroupFaults, "duration of a fault")
	// FaultDetected: fault → the end of the subject's first sync or command that answers it, which began Uncertainty before;
	// none if a change may have caused that sync.
	FaultDetected = metric("fault_detected", "s", GroupFaults, "time to detect a fault")
	// FaultRepaired is the time until the kernel again has everything that the fault removed or delayed. For removed
	// objects it counts from the fault. Otherwise it counts from the fault's end until all earlier changes are visible.
	// For dropped watches, it is how long the first later change waited. For faults that delay changes one by one
	// (references, events duplicated or reordered), it is the longest delay.
	FaultRepaired = metric("fault_repaired", "s", GroupFaults, "time to recover from a fault")
	// WriterWait is one call of another program that writes its own rules in the subject's namespace: start → end of the
	// call. Method is its tool, Kind what it may have to wait for, Step that of its start; Outcome is WriteFailed if it wrote nothing.
	// Of iptables it includes the start of the tool, and the reading and writing of the table.
	WriterWait = metric("writer_wait", "s", GroupFaults, "write of another program")
	// StaleChainsDeleted: foreign references are gone → the subject has deleted the last chain without rules that they kept from
	// being deleted. Table is the family.
	StaleChainsDeleted = metric("stale_chains_deleted", "s", GroupFaults, "time to delete stale chains, once nothing refers to them")
	// InvariantChecks is the number of checks of one Invariant
	InvariantChecks = metric("invariant_checks", "count", GroupFaults, "invariant checks")
	// Violation is a number of violations of Invariant; Error has details and how to reproduce
	Violation = metric("violation", "count", GroupFaults, "violations")
	// Rules, RulesKernel, RulesExpected and Chains are counts by table. Rules are own rules, after a sync; RulesKernel is what the
	// kernel counts at a settle; RulesExpected is predicted by the closed form.
	Rules         = metric("rules", "count", GroupSizes, "rules installed")
	RulesKernel   = metric("rules_kernel", "count", GroupSizes, "rules, counted by the kernel")
	RulesExpected = metric("rules_expected", "count", GroupSizes, "rules, expected")
	Chains        = metric("chains", "count", GroupSizes, "chains")
	// RestoreBytes are sent by one sync.
	RestoreBytes = metric("restore_bytes", "B", GroupSizes, "restore bytes")
	// PeakRSS is that of the subject's process; with FeedInformers of the lab's process
	PeakRSS = metric("peak_rss", "B", GroupSizes, "peak RSS")
	// RSS is that of the subject's first process after so many changes, Change; with FeedAPI
	RSS = metric("rss", "B", GroupSizes, "RSS during changes")
	// LabPeakRSS is that of the lab's own process, with the cluster and the fake API server; with FeedAPI
	LabPeakRSS = metric("lab_peak_rss", "B", GroupSizes, "peak RSS of the lab itself")
	// ChildPeakRSS is that of the largest tool of one sync
	ChildPeakRSS = metric("child_peak_rss", "B", GroupSizes, "peak RSS of the tool")
	// KernelMemory: slab and vmalloc growth over the ruleset, where it can be read
	KernelMemory = metric("kernel_memory", "B", GroupSizes, "kernel memory of the ruleset")
	// ProfiledSyncs is the number of syncs of a Kind whose times are known, so that samples are filed under that kind.
	// Kind "cold start" is the time until every Service is visible.
	ProfiledSyncs = metric("profiled_syncs", "count", GroupSyncs, "syncs in profiles")
	// ProfileSamples is the number of samples in a profile, File. ProfileLost is the number of samples that were lost.
	ProfileSamples = metric("profile_samples", "count", GroupSyncs, "samples in profiles")
	ProfileLost    = metric("profile_lost", "count", GroupSyncs, "lost samples")
	// HeapProfile is what the heap of the subject's process held when its repetition ended, after a collection: bytes in use.
	// The profile is in File.
	HeapProfile = metric("heap_profile", "B", GroupSizes, "heap in use when the repetition ended")
	// ToolInput is one call of a tool, Method, whose standard input is in File: its duration.
	ToolInput = metric("tool_input", "s", GroupSyncs, "call of a tool whose input was kept")
	// SyncFailed is 1 for each sync that failed
	SyncFailed = metric("sync_failed", "count", GroupSyncs, "failed syncs")
	// KernelStall is a report of a stall that the kernel logged: how long a task had been stuck, or 0 where the kernel does not
	// say. Kind is one of package machine's, Error the message. A stall that lasts has several reports, with the same At.
	// The log is the machine's, so another process may be the cause.
	// KernelStalls is the number of stalls of a repetition. StallsUnobserved: the log could not be read; Error says why.
	KernelStall      = metric("kernel_stall", "s", GroupSyncs, "stall of the kernel")
	KernelStalls     = metric("kernel_stalls", "count", GroupSyncs, "stalls of the kernel in a repetition")
	StallsUnobserved = metric("stalls_unobserved", "count", GroupSyncs, "repetitions without observed stalls")
	// ScheduleGap is the longest time of a step for which a process of normal priority that was ready to run on a CPU, Kind,
	// did not run. The lab's watchdog measures it, which stays on that CPU. Whatever ran there may be the cause.
	ScheduleGap = metric("schedule_gap", "s", GroupSyncs, "longest time that another process could not run")
	// CacheLoad is the time of one load from 4 MiB that a CPU, Kind, had just read, at the start and at the end of a repetition. It is
	// a control: no subject changes it, but other tenants of a shared machine do, since they share its last cache.
	CacheLoad = metric("cache_load", "s", GroupSyncs, "one load from a cache of the machine")
	// ChangesApplied are those of one step.
	ChangesApplied = metric("changes_applied", "count", GroupSizes, "changes applied")
	// Exceeded reports that the subject was stopped because it exceeded a budget. Value is what it had used, with unit s
	// or B, or the largest number of rules that it could write (count). Error has the budget and how far the subject had
	// come.
	Exceeded = metric("exceeded", "", GroupSizes, "exceeded")
	// Turn is the place of this subject among those of its repetition, from 1; After names the one that ran before it.
	Turn = metric("turn", "count", GroupSizes, "turn")
)
