package records

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"synclab/bench/raw"
	"synclab/reports/doc"
)

// SyncBusy is a derived metric: the share of churn during which syncs ran, one value per repetition.
const SyncBusy raw.Metric = "sync_busy"

// metricText is the display text of a metric. Tables show metrics in the order of metricTexts.
type metricText struct {
	metric raw.Metric
	Group  string // section of the page's tables
	Text   string
}

const (
	GroupSyncs   = "Syncs and their phases"
	GroupChanges = "From a change to the kernel"
	GroupPackets = "First packet"
	GroupFlows   = "Flows during syncs"
	GroupFaults  = "Faults and invariants"
	GroupSizes   = "Rules, bytes and memory"
)

var metricTexts = []metricText{
	{raw.Reaction, GroupSyncs, "reaction"},
	{raw.ColdStart, GroupSyncs, "cold start"},
	{raw.ColdStartShare, GroupSyncs, "cold start, until a share of the Services is visible"},
	{raw.FullSync, GroupSyncs, "full sync"},
	{raw.PartialSync, GroupSyncs, "partial sync"},
	{raw.Restore, GroupSyncs, "writing the rules of a sync"},
	{raw.Restores, GroupSyncs, "restores or transactions of a sync"},
	{raw.Plan, GroupSyncs, "plan"},
	{raw.Encode, GroupSyncs, "encode"},
	{raw.Jumps, GroupSyncs, "jumps"},
	{raw.Written, GroupSyncs, "from the start of a sync until the kernel has everything"},
	{raw.RestoreRefused, GroupSyncs, "restores refused within a sync"},
	{raw.ToolUser, GroupSyncs, "user time of tools, or between own system calls"},
	{raw.ToolSys, GroupSyncs, "kernel: system time of tools, or of own system calls"},
	{raw.Load, GroupSyncs, "load"},
	{raw.SubjectCPU, GroupSyncs, "CPU time of the subject and its children in one step"},
	{raw.LabCPU, GroupSyncs, "CPU time of the lab itself in one step"},
	{raw.ToolCalls, GroupSyncs, "iptables and nft commands of a sync"},
	{raw.ShimCost, GroupSyncs, "time that the shim adds to a command"},
	{raw.ReadingCost, GroupSyncs, "CPU time of the subject for one reading of its metrics"},
	{raw.SyncsNotSeparable, GroupSyncs, "syncs without durations: they cannot be separated"},
	{raw.NetworkProgrammingLatency, GroupChanges, "network programming latency"},
	{raw.ChangeSynced, GroupChanges, "change in the cluster → end of its sync"},
	{raw.ChangeReverted, GroupChanges, "changes reverted before they were written"},
	{raw.Queue, GroupChanges, "queue"},
	{raw.Changes, GroupChanges, "changes of a sync"},
	{raw.Backlog, GroupChanges, "backlog at sync start"},
	{SyncBusy, GroupChanges, "share of churn spent in syncs"},
	{raw.FirstPacket, GroupPackets, "first packet"},
	{raw.RulesEvaluated, GroupPackets, "rules evaluated for a first packet"},
	{raw.Flow, GroupFlows, "new flow"},
	{raw.LongLivedFlow, GroupFlows, "packet of a long-lived flow"},
	{raw.RemovedEndpointServing, GroupFlows, "serving time of a removed endpoint"},
	{raw.NewEndpointDelay, GroupFlows, "delay of a new endpoint"},
	{raw.PacketVerdict, GroupFlows, "endpoints that answer at an address of a Service"},
	{raw.Move, GroupFlows, "from the end of one proxier until the tables of the next have every Service"},
	{raw.MoveSettled, GroupFlows, "from the end of one proxier until the next has converged"},
	{raw.LeftBehind, GroupFlows, "what a proxier left for the next one"},
	{raw.BehaviourDiffers, GroupFlows, "Services that the next proxier treats differently"},
	{raw.Reachable, GroupFlows, "change due → first packet to a new endpoint"},
	{raw.Unreachable, GroupFlows, "change due → last packet to an old endpoint"},
	{raw.ReachableAfterVisible, GroupFlows, "first packet to a new endpoint, after the tables showed the change"},
	{raw.UnreachableAfterVisible, GroupFlows, "last packet to an old endpoint, after the tables showed the change"},
	{raw.FlowsUnobserved, GroupFlows, "unobserved flows"},
	{raw.ControlFailure, GroupFlows, "flow that timed out together with flows past the rules"},
	{raw.FaultDuration, GroupFaults, "duration of a fault"},
	{raw.FaultDetected, GroupFaults, "time to detect a fault"},
	{raw.FaultRepaired, GroupFaults, "time to recover from a fault"},
	{raw.InvariantChecks, GroupFaults, "invariant checks"},
	{raw.Violation, GroupFaults, "violations"},
	{raw.Rules, GroupSizes, "rules installed"},
	{raw.RulesKernel, GroupSizes, "rules, counted by the kernel"},
	{raw.RulesExpected, GroupSizes, "rules, expected"},
	{raw.Chains, GroupSizes, "chains"},
	{raw.RestoreBytes, GroupSizes, "restore bytes"},
	{raw.PeakRSS, GroupSizes, "peak RSS"},
	{raw.LabPeakRSS, GroupSizes, "peak RSS of the lab itself"},
	{raw.ChildPeakRSS, GroupSizes, "peak RSS of the tool"},
	{raw.KernelMemory, GroupSizes, "kernel memory of the ruleset"},
	{raw.ProfiledSyncs, GroupSyncs, "syncs in profiles"},
	{raw.ProfileSamples, GroupSyncs, "samples in profiles"},
	{raw.ProfileLost, GroupSyncs, "lost samples"},
	{raw.ToolInput, GroupSyncs, "call of a tool whose input was kept"},
	{raw.SyncFailed, GroupSyncs, "failed syncs"},
	{raw.KernelStall, GroupSyncs, "stall of the kernel"},
	{raw.KernelStalls, GroupSyncs, "stalls of the kernel in a repetition"},
	{raw.StallsUnobserved, GroupSyncs, "repetitions without observed stalls"},
}

// MetricOrder sorts known metrics in the order of metricTexts, and unknown metrics after them.
func MetricOrder(m raw.Metric) int {
	for i, t := range metricTexts {
		if t.metric == m {
			return i
		}
	}
	return len(metricTexts)
}

// TextOf returns the display text of a metric. An unknown metric keeps its name and is in the last section.
func TextOf(m raw.Metric) metricText {
	if i := MetricOrder(m); i < len(metricTexts) {
		return metricTexts[i]
	}
	return metricText{m, GroupSizes, strings.ReplaceAll(string(m), "_", " ")}
}

// EndpointsText writes a mean number of endpoints: 10, or 9.7.
func EndpointsText(e float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(e, 'f', 1, 64), ".0")
}

// PositionText is the display name of a probed position.
func PositionText(position int) string {
	switch position {
	case -1:
		return "miss"
	case 0:
		return "empty ruleset"
	default:
		return "position " + doc.Grouped(int64(position))
	}
}

// NaturalCompare orders settings ("a=1s b=x") by value: 500ms before 1s before 10s, 9 before 10.
func NaturalCompare(a, b string) int {
	fa, fb := strings.Fields(a), strings.Fields(b)
	for i := range min(len(fa), len(fb)) {
		na, va, _ := strings.Cut(fa[i], "=")
		nb, vb, _ := strings.Cut(fb[i], "=")
		if c := cmp.Or(strings.Compare(na, nb), CompareValues(va, vb)); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(fa), len(fb))
}

func CompareValues(a, b string) int {
	x, okx := Quantity(a)
	y, oky := Quantity(b)
	if okx && oky && x != y {
		return cmp.Compare(x, y)
	}
	return strings.Compare(a, b)
}

// Quantity reads a swept value as a number, or as a duration in seconds.
func Quantity(text string) (float64, bool) {
	if v, err := strconv.ParseFloat(text, 64); err == nil {
		return v, true
	}
	if d, err := time.ParseDuration(text); err == nil {
		return d.Seconds(), true
	}
	return 0, false
}

// Distinct returns the different values in order of first appearance.
func Distinct[T comparable](values []T) []T {
	var out []T
	for _, v := range values {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}
