package reports

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"synclab/bench/raw"
	"synclab/reports/doc"
)

// syncBusy is a derived metric: the share of churn during which syncs ran, one value per repetition.
const syncBusy raw.Metric = "sync_busy"

// metricText is the display text of a metric. Tables show metrics in the order of metricTexts.
type metricText struct {
	metric raw.Metric
	group  string // section of the page's tables
	text   string
}

const (
	groupSyncs   = "Syncs and their phases"
	groupChanges = "From a change to the kernel"
	groupPackets = "First packet"
	groupFlows   = "Flows during syncs"
	groupFaults  = "Faults and invariants"
	groupSizes   = "Rules, bytes and memory"
)

var metricTexts = []metricText{
	{raw.Reaction, groupSyncs, "reaction"},
	{raw.ColdStart, groupSyncs, "cold start"},
	{raw.FullSync, groupSyncs, "full sync"},
	{raw.PartialSync, groupSyncs, "partial sync"},
	{raw.Restore, groupSyncs, "writing the rules of a sync"},
	{raw.Restores, groupSyncs, "restores or transactions of a sync"},
	{raw.Plan, groupSyncs, "plan"},
	{raw.Encode, groupSyncs, "encode"},
	{raw.Jumps, groupSyncs, "jumps"},
	{raw.Written, groupSyncs, "from the start of a sync until the kernel has everything"},
	{raw.RestoreRefused, groupSyncs, "restores refused within a sync"},
	{raw.ToolUser, groupSyncs, "user time of tools, or between own system calls"},
	{raw.ToolSys, groupSyncs, "kernel: system time of tools, or of own system calls"},
	{raw.Load, groupSyncs, "load"},
	{raw.SubjectCPU, groupSyncs, "CPU time of the subject and its children in one step"},
	{raw.ToolCalls, groupSyncs, "iptables and nft commands of a sync"},
	{raw.ShimCost, groupSyncs, "time that the shim adds to a command"},
	{raw.SyncsNotSeparable, groupSyncs, "syncs without durations: they cannot be separated"},
	{raw.NetworkProgrammingLatency, groupChanges, "network programming latency"},
	{raw.ChangeSynced, groupChanges, "change in the cluster → end of its sync"},
	{raw.ChangeReverted, groupChanges, "changes reverted before they were written"},
	{raw.Queue, groupChanges, "queue"},
	{raw.Changes, groupChanges, "changes of a sync"},
	{raw.Backlog, groupChanges, "backlog at sync start"},
	{syncBusy, groupChanges, "share of churn spent in syncs"},
	{raw.FirstPacket, groupPackets, "first packet"},
	{raw.RulesEvaluated, groupPackets, "rules evaluated for a first packet"},
	{raw.Flow, groupFlows, "new flow"},
	{raw.LongLivedFlow, groupFlows, "packet of a long-lived flow"},
	{raw.RemovedEndpointServing, groupFlows, "serving time of a removed endpoint"},
	{raw.NewEndpointDelay, groupFlows, "delay of a new endpoint"},
	{raw.FlowsUnobserved, groupFlows, "unobserved flows"},
	{raw.FlowsMachine, groupFlows, "flows that failed together with a control flow"},
	{raw.FaultDuration, groupFaults, "duration of a fault"},
	{raw.FaultDetected, groupFaults, "time to detect a fault"},
	{raw.FaultRepaired, groupFaults, "time to recover from a fault"},
	{raw.InvariantChecks, groupFaults, "invariant checks"},
	{raw.Violation, groupFaults, "violations"},
	{raw.Rules, groupSizes, "rules installed"},
	{raw.RulesKernel, groupSizes, "rules, counted by the kernel"},
	{raw.RulesExpected, groupSizes, "rules, expected"},
	{raw.Chains, groupSizes, "chains"},
	{raw.RestoreBytes, groupSizes, "restore bytes"},
	{raw.PeakRSS, groupSizes, "peak RSS"},
	{raw.ChildPeakRSS, groupSizes, "peak RSS of the tool"},
	{raw.KernelMemory, groupSizes, "kernel memory of the ruleset"},
	{raw.SyncFailed, groupSyncs, "failed syncs"},
}

// metricOrder sorts known metrics in the order of metricTexts, and unknown metrics after them.
func metricOrder(m raw.Metric) int {
	for i, t := range metricTexts {
		if t.metric == m {
			return i
		}
	}
	return len(metricTexts)
}

// textOf returns the display text of a metric. An unknown metric keeps its name and is in the last section.
func textOf(m raw.Metric) metricText {
	if i := metricOrder(m); i < len(metricTexts) {
		return metricTexts[i]
	}
	return metricText{m, groupSizes, strings.ReplaceAll(string(m), "_", " ")}
}

// endpointsText writes a mean number of endpoints: 10, or 9.7.
func endpointsText(e float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(e, 'f', 1, 64), ".0")
}

// positionText is the display name of a probed position.
func positionText(position int) string {
	switch position {
	case -1:
		return "miss"
	case 0:
		return "empty ruleset"
	default:
		return "position " + doc.Grouped(int64(position))
	}
}

// naturalCompare orders settings ("a=1s b=x") by value: 500ms before 1s before 10s, 9 before 10.
func naturalCompare(a, b string) int {
	fa, fb := strings.Fields(a), strings.Fields(b)
	for i := range min(len(fa), len(fb)) {
		na, va, _ := strings.Cut(fa[i], "=")
		nb, vb, _ := strings.Cut(fb[i], "=")
		if c := cmp.Or(strings.Compare(na, nb), compareValues(va, vb)); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(fa), len(fb))
}

func compareValues(a, b string) int {
	x, okx := quantity(a)
	y, oky := quantity(b)
	if okx && oky && x != y {
		return cmp.Compare(x, y)
	}
	return strings.Compare(a, b)
}

// quantity reads a swept value as a number, or as a duration in seconds.
func quantity(text string) (float64, bool) {
	if v, err := strconv.ParseFloat(text, 64); err == nil {
		return v, true
	}
	if d, err := time.ParseDuration(text); err == nil {
		return d.Seconds(), true
	}
	return 0, false
}

// distinct returns the different values in order of first appearance.
func distinct[T comparable](values []T) []T {
	var out []T
	for _, v := range values {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}
