package reports

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"synclab/bench"
)

// syncBusy is derived: the share of a churn during which syncs ran, one value per repetition.
const syncBusy bench.Metric = "sync_busy"

// metricText says what people read for a metric, in the order in which tables show them.
type metricText struct {
	metric bench.Metric
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
	{bench.Reaction, groupSyncs, "reaction"},
	{bench.ColdStart, groupSyncs, "cold start"},
	{bench.FullSync, groupSyncs, "full sync"},
	{bench.PartialSync, groupSyncs, "partial sync"},
	{bench.Restore, groupSyncs, "writing the rules of a sync"},
	{bench.Restores, groupSyncs, "restores or transactions of a sync"},
	{bench.Plan, groupSyncs, "plan"},
	{bench.Encode, groupSyncs, "encode"},
	{bench.Jumps, groupSyncs, "jumps"},
	{bench.Written, groupSyncs, "start of a sync until the kernel has everything"},
	{bench.RestoreRefused, groupSyncs, "restores refused within a sync"},
	{bench.ToolUser, groupSyncs, "user time of tools, or beside own system calls"},
	{bench.ToolSys, groupSyncs, "kernel: system time of tools, or of own system calls"},
	{bench.Load, groupSyncs, "load"},
	{bench.SubjectCPU, groupSyncs, "CPU of the subject and its children, of one step"},
	{bench.ToolCalls, groupSyncs, "iptables and nft commands of a sync"},
	{bench.ShimCost, groupSyncs, "what measuring adds to a command"},
	{bench.SyncsNotSeparable, groupSyncs, "syncs not told apart, of which no duration is known"},
	{bench.NetworkProgrammingLatency, groupChanges, "network programming latency"},
	{bench.ChangeSynced, groupChanges, "change in the cluster → end of its sync"},
	{bench.ChangeUndone, groupChanges, "changes undone before they were written"},
	{bench.Queue, groupChanges, "queue"},
	{bench.Changes, groupChanges, "changes of a sync"},
	{bench.Backlog, groupChanges, "backlog at sync start"},
	{syncBusy, groupChanges, "share of churn spent in syncs"},
	{bench.FirstPacket, groupPackets, "first packet"},
	{bench.RulesCrossed, groupPackets, "rules crossed by a first packet"},
	{bench.Flow, groupFlows, "new flow"},
	{bench.HeldFlow, groupFlows, "packet of a flow held"},
	{bench.RemovedServed, groupFlows, "removed endpoint served for"},
	{bench.AddedWaits, groupFlows, "new endpoint waits"},
	{bench.FlowsUnwatched, groupFlows, "flows nobody watched"},
	{bench.FaultBegun, groupFaults, "fault holds"},
	{bench.FaultDetected, groupFaults, "fault detected after"},
	{bench.FaultRepaired, groupFaults, "fault repaired after"},
	{bench.Checked, groupFaults, "looked at for invariants"},
	{bench.Violation, groupFaults, "violations"},
	{bench.Rules, groupSizes, "rules installed"},
	{bench.RulesKernel, groupSizes, "rules, counted by the kernel"},
	{bench.RulesClosedForm, groupSizes, "rules, closed form"},
	{bench.Chains, groupSizes, "chains"},
	{bench.RestoreBytes, groupSizes, "restore bytes"},
	{bench.PeakRSS, groupSizes, "peak RSS"},
	{bench.ChildPeakRSS, groupSizes, "peak RSS of the tool"},
	{bench.KernelMemory, groupSizes, "kernel memory of the ruleset"},
	{bench.SyncFailed, groupSyncs, "failed syncs"},
}

// metricOrder sorts known metrics as above and unknown ones behind them.
func metricOrder(m bench.Metric) int {
	for i, t := range metricTexts {
		if t.metric == m {
			return i
		}
	}
	return len(metricTexts)
}

// textOf a metric; one this package does not know keeps its name and goes to the last section.
func textOf(m bench.Metric) metricText {
	if i := metricOrder(m); i < len(metricTexts) {
		return metricTexts[i]
	}
	return metricText{m, groupSizes, strings.ReplaceAll(string(m), "_", " ")}
}

// Format writes a value of a unit (s, B, count, ratio) with three significant digits, for people.
func Format(value float64, unit string) string {
	if math.IsNaN(value) {
		return "–"
	}
	switch unit {
	case "s":
		return formatSeconds(value)
	case "B":
		return formatBytes(value)
	case "ratio":
		return significant(value*100) + " %"
	case "count", "":
		if value == math.Trunc(value) {
			return Grouped(int64(value))
		}
		return significant(value)
	default:
		return significant(value) + " " + unit
	}
}

func formatSeconds(s float64) string {
	switch abs := math.Abs(s); {
	case s == 0:
		return "0 s"
	case abs < 999.5e-9:
		return significant(s*1e9) + " ns"
	case abs < 999.5e-6:
		return significant(s*1e6) + " µs"
	case abs < 0.9995:
		return significant(s*1e3) + " ms"
	case abs < 600:
		return significant(s) + " s"
	default:
		return (time.Duration(math.Round(s)) * time.Second).String()
	}
}

func formatBytes(b float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for math.Abs(b) >= 1000 && i < len(units)-1 {
		b /= 1024
		i++
	}
	return significant(b) + " " + units[i]
}

// significant keeps three digits, and all digits before the point.
func significant(v float64) string {
	abs := math.Abs(v)
	switch {
	case abs == 0:
		return "0"
	case abs >= 99.95:
		return Grouped(int64(math.Round(v)))
	case abs >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case abs >= 0.01:
		return strconv.FormatFloat(v, 'f', 2, 64)
	default:
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
}

// Grouped writes an integer with its thousands apart: 12,345.
func Grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

// endpointsText writes a mean number of endpoints: 10, or 9.7.
func endpointsText(e float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(e, 'f', 1, 64), ".0")
}

// positionText names a probed position.
func positionText(position int) string {
	switch position {
	case -1:
		return "miss"
	case 0:
		return "empty ruleset"
	default:
		return "position " + Grouped(int64(position))
	}
}

// naturalCompare orders settings ("a=1s b=x") by their values: 500ms before 1s before 10s, 9 before 10.
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

// joinWords writes "a", "a and b" or "a, b and c".
func joinWords(words []string) string {
	switch n := len(words); n {
	case 0:
		return ""
	case 1:
		return words[0]
	default:
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
}

// plural writes "1 change" or "2,000 changes".
func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%s %ss", Grouped(int64(n)), word)
}

// distinct values in order of their first appearance.
func distinct[T comparable](values []T) []T {
	var out []T
	for _, v := range values {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}
