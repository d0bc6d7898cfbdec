package comparison

import (
	"slices"

	"synclab/bench/raw"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// Figure is a row of the table of figures: what reports compare. Its values by repetition are made of a cell's records.
type Figure struct {
	Name, Text, Unit string
	Short            string // column on a terminal
	Legend           string // explains Short
	Title            string // what is measured
	Words            Words
	Percent          float64 // percentile of the values of a repetition; 0: 50
	Values           func(*records.Samples, SameSource) estimate.Sample
	// Kernel is the figure of its kernel time.
	Kernel string
	// SelfReported: only the subject reports it.
	SelfReported bool
	// Ends: it ends when all is done, so that a subject that is stopped has none. Growing: of a stopped subject it is too low,
	// since late values are missing.
	Ends, Growing bool
	// Packet: it is about first packets, which are not compared in a guest, whose system calls are slow.
	Packet bool
	// OfRuns: only two runs are compared by it, not the subjects of a cell.
	OfRuns bool
	// Counted: equal in all repetitions, it needs no statistics. Never: a single occurrence is too many. Quiet: not shown while
	// it is 0.
	Counted, Never, Quiet bool
	// Brief: terminals and Markdown show it, too.
	Brief bool
	// Spare is how early a narrow terminal leaves it out; 0: never.
	Spare int
	// Detail names the fault, or the kind of packets, of a figure that there is several times.
	Detail string
}

// Words say that a value is larger than a baseline's, or smaller.
type Words struct{ More, Less string }

var (
	slower = Words{"slower", "faster"}
	more   = Words{"more", "less"}
	moreOf = Words{"more", "fewer"} // what is counted
	longer = Words{"longer", "shorter"}
)

// Names of figures, as in summary.json.
const (
	FigureReaction     = "reaction"
	FigureCold         = "cold_start"
	FigureFull         = "full_sync"
	FigurePartial      = "partial_sync"
	FigureNPL50        = "network_programming_latency_p50"
	FigureNPL99        = "network_programming_latency_p99"
	FigureColdCPU      = "cold_start_cpu"
	FigureCPU          = "cpu_per_change"
	FigureRSS          = "peak_rss"
	FigureChildRSS     = "child_peak_rss"
	FigureTotalRSS     = "total_peak_rss"
	FigureFullSys      = "full_sync_kernel"
	FigurePartialSys   = "partial_sync_kernel"
	FigureFirstPacket  = "first_packet_last"
	FigureFirstSYN     = "first_packet_tcp_last"
	FigureConnection   = "connection_time"
	FigureConnCPU      = "connection_cpu"
	FigureRules        = "rules"
	FigureElements     = "elements"
	FigureIptablesWait = "iptables_wait_longest"
	FigureNftWait      = "nft_wait_longest"

	figurePacketKind = "first_packet" // to a kind of destination, or by another method
	figureRepaired   = "fault_repaired"
)

// kernelTime explains the kernel time of syncs.
const kernelTime = ": system time of the subject's tools (which many kernels count in ticks of some ms), or wall time of the subject's own system calls"

// Figures is the table of figures, in the order of the columns. A new one is a row here; its name also goes to the list of
// package scenarios, which checks thresholds.
var Figures = []Figure{
	{Brief: true, Name: FigureReaction, Text: "Reaction", Unit: "s", Words: slower, Values: valuesOf(raw.Reaction), Ends: true, Growing: true,
		Short: "react", Legend: "react: reaction, from an isolated change until it is visible in the kernel",
		Title: "one isolated change to an idle subject, without waiting for minSyncPeriod: due in the cluster → visible in the kernel, measured from outside"},
	{Brief: true, Name: FigureCold, Text: "Cold start", Unit: "s", Words: slower, Values: valuesOf(raw.ColdStart), Ends: true,
		Short: "cold", Title: "the subject's process starts → every Service is visible in the kernel, measured from outside"},
	{Brief: true, Name: FigureNPL50, Text: "Latency p50", Unit: "s", Words: slower, Values: valuesOf(raw.NetworkProgrammingLatency), Ends: true, Growing: true, Spare: 1,
		Short: "npl p50", Legend: "npl: network programming latency",
		Title: "network programming latency under churn, with the wait for minSyncPeriod: due in the cluster → visible in the kernel"},
	{Brief: true, Name: FigureNPL99, Text: "Latency p99", Unit: "s", Words: slower, Percent: 99, Values: valuesOf(raw.NetworkProgrammingLatency), Ends: true, Growing: true,
		Short: "npl p99", Legend: "npl: network programming latency",
		Title: "network programming latency of 99 of 100 changes under churn, with the wait for minSyncPeriod"},
	{Brief: true, Name: FigureFull, Text: "Full sync", Unit: "s", Words: slower, Values: valuesOf(raw.FullSync), Ends: true, SelfReported: true, Kernel: FigureFullSys,
		Short: "full*", Legend: "*: self-reported", Title: "one full sync, as the subject itself reports it"},
	{Brief: true, Name: FigurePartial, Text: "Partial sync", Unit: "s", Words: slower, Values: valuesOf(raw.PartialSync), SelfReported: true, Kernel: FigurePartialSys,
		Short: "partial*", Legend: "*: self-reported", Title: "one partial sync, as the subject itself reports it"},
	{Name: FigureFullSys, Text: "Full sync, kernel", Unit: "s", Words: more, Values: ofKind(raw.ToolSys, "full"),
		Short: "kernel", Title: "kernel time of one full sync" + kernelTime},
	{Name: FigurePartialSys, Text: "Partial sync, kernel", Unit: "s", Words: more, Values: ofKind(raw.ToolSys, "partial"),
		Short: "kernel", Title: "kernel time of one partial sync" + kernelTime},
	{Name: "restore", Text: "Writing rules", Unit: "s", Words: slower, Values: ofWrites(raw.Restore),
		Short: "restore", Title: "wall time of writing the rules of one sync with iptables-restore, nft or netlink; of full syncs only, where all subjects report the kind"},
	{Name: "restores", Text: "Restores", Unit: "count", Words: moreOf, Counted: true, Values: ofWrites(raw.Restores),
		Short: "restores", Title: "restores or transactions of one sync; of full syncs only, where all subjects report the kind"},
	{Name: FigureColdCPU, Text: "CPU, cold start", Unit: "s", Words: more, Values: ColdCPU,
		Short: "cpu cold", Title: "user and system time of the subject and its children, from the first create to the end of the settle after it"},
	{Brief: true, Name: FigureCPU, Text: "CPU per change", Unit: "s", Words: more, Values: ChangeCPU,
		Short: "cpu/chg", Title: "user and system time of the subject and its children over the steps with changes and the settles after them, for each change"},
	{Brief: true, Name: FigureRSS, Text: "Peak RSS", Unit: "B", Words: more, Values: LargestOf(raw.PeakRSS), Growing: true,
		Short: "rss", Title: "of the subject's process"},
	{Name: FigureChildRSS, Text: "Peak RSS, child", Unit: "B", Words: more, Values: LargestOf(raw.ChildPeakRSS), Growing: true,
		Short: "child rss", Title: "of the largest tool that the subject started"},
	{Name: FigureTotalRSS, Text: "Peak memory", Unit: "B", Words: more, Values: TotalRSSValues, Growing: true,
		Short: "rss+child", Title: "sum of the peaks of the subject's process and of the largest tool that it started, if any"},
	{Name: "first_packet_first", Text: "First packet, first", Unit: "s", Words: slower, Values: firstPacketValues, OfRuns: true, Packet: true},
	{Brief: true, Name: FigureFirstPacket, Text: "First packet", Unit: "s", Words: slower, Values: lastPacketValues(""), Packet: true,
		Short: "packet", Legend: "packet: first packet to the last Service", Title: "at the last Service of the dispatch"},
	{Name: "first_packet_miss", Text: "First packet, miss", Unit: "s", Words: slower, Values: missValues, OfRuns: true, Packet: true},
	{Brief: true, Name: FigureFirstSYN, Text: "First packet, TCP", Unit: "s", Words: slower, Values: lastPacketValues(raw.MethodConnect), Packet: true,
		Short: "syn", Legend: "syn: first packet of TCP to the last Service", Title: "the SYN at the last Service of the dispatch; the cluster has no UDP Service"},
	{Brief: true, Name: FigureConnection, Text: "Time per connection", Unit: "s", Words: slower, Values: connectionTime, Packet: true,
		Short: "conn", Legend: "conn: time per connection, the inverse of connections a second",
		Title: "the inverse of connections a second through Services, of all clients together, without keep-alive; the median of positions in the dispatch and turns"},
	{Brief: true, Name: FigureConnCPU, Text: "CPU per connection", Unit: "s", Words: more, Values: ConnectionValues(raw.ConnectionCPU), Packet: true,
		Short: "cpu/conn", Title: "CPU time of one connection through a Service: of its two ends and of the node between them; the median of positions in the dispatch and turns"},
	{Brief: true, Name: FigureRules, Text: "Rules", Unit: "count", Words: moreOf, Counted: true, Values: CountValues(false), Spare: 2,
		Short: "rules", Title: "all tables; counted by the kernel if all subjects have such counts"},
	{Name: FigureElements, Text: "Elements", Unit: "count", Words: moreOf, Counted: true, Values: CountValues(true),
		Short: "elements", Title: "elements of sets and maps"},
	{Name: "iptables_wait_p50", Text: "Others' iptables, p50", Unit: "s", Words: longer, Values: writerWaits(raw.MethodIptables, false),
		Short: "iptables p50", Title: "one call of iptables by another program, which waits for the xtables lock (legacy) or for commits of nf_tables; it includes the start of the tool"},
	{Name: "iptables_wait_p99", Text: "Others' iptables, p99", Unit: "s", Words: longer, Percent: 99, Values: writerWaits(raw.MethodIptables, false),
		Short: "iptables p99", Title: "99 of 100 of these calls"},
	{Brief: true, Name: FigureIptablesWait, Text: "Others' iptables, longest", Unit: "s", Words: longer, Values: writerWaits(raw.MethodIptables, true), Growing: true,
		Short: "ipt max", Legend: "ipt max, nft max: the longest that another program's call of iptables, or its commit, took", Spare: 1, Title: "the longest of these calls"},
	{Name: "nft_wait_p50", Text: "Others' nft, p50", Unit: "s", Words: longer, Values: writerWaits(raw.MethodNft, false),
		Short: "nft p50", Title: "one commit of another program to its own table of nf_tables"},
	{Name: "nft_wait_p99", Text: "Others' nft, p99", Unit: "s", Words: longer, Percent: 99, Values: writerWaits(raw.MethodNft, false),
		Short: "nft p99", Title: "99 of 100 of these calls"},
	{Brief: true, Name: FigureNftWait, Text: "Others' nft, longest", Unit: "s", Words: longer, Values: writerWaits(raw.MethodNft, true), Growing: true,
		Short: "nft max", Legend: "ipt max, nft max: the longest that another program's call of iptables, or its commit, took", Spare: 1, Title: "the longest of these calls"},
	{Name: "schedule_gap", Text: "Longest stall", Unit: "s", Words: longer, Values: LargestOf(raw.ScheduleGap), Growing: true,
		Short: "stall", Title: "the longest time that another process of normal priority, ready to run on one CPU, could not run"},
	{Name: "chains", Text: "Chains", Unit: "count", Words: moreOf, Counted: true, Values: chainValues, OfRuns: true},
	{Name: "partial_sync_listing", Text: "Partial sync, reads", Unit: "s", Words: slower, Values: ofKind(raw.Listing, "partial"), OfRuns: true,
		Title: "wall time of the commands of one partial sync that only read rules; 0: it reads over netlink, or not at all"},
	{Name: "partial_sync_restore", Text: "Partial sync, writes", Unit: "s", Words: slower, Values: ofKind(raw.Restore, "partial"), OfRuns: true,
		Title: "wall time of writing the rules of one partial sync"},
	{Name: "full_sync_listing", Text: "Full sync, reads", Unit: "s", Words: slower, Values: ofKind(raw.Listing, "full"), OfRuns: true,
		Title: "wall time of the commands of one full sync that only read rules"},
	{Name: "full_sync_bytes", Text: "Bytes, full sync", Unit: "B", Words: more, Counted: true, Values: ofKind(raw.RestoreBytes, "full"), OfRuns: true},
	{Name: "partial_sync_bytes", Text: "Bytes, partial sync", Unit: "B", Words: more, Values: ofKind(raw.RestoreBytes, "partial"), OfRuns: true},
	{Name: "kernel_memory", Text: "Kernel memory", Unit: "B", Words: more, Values: LargestOf(raw.KernelMemory),
		Short: "kernel mem", Title: "peak growth of the kernel's own memory over the ruleset: slab that it cannot reclaim, vmalloc and percpu of the whole machine, read after syncs and at settles"},
	{Name: "flow_p50", Text: "New flow p50", Unit: "s", Words: slower, Values: answeredFlows, OfRuns: true},
	{Name: "flow_p99", Text: "New flow p99", Unit: "s", Words: slower, Percent: 99, Values: answeredFlows, OfRuns: true},
	{Name: "flows_failed", Text: "Flows failed", Unit: "count", Words: more, Values: flowsBy(flowFailed), OfRuns: true},
	{Name: "flows_misrouted", Text: "Flows misrouted", Unit: "count", Words: more, Never: true, Values: flowsBy(flowMisrouted), OfRuns: true},
	{Name: "syncs_failed", Text: "Syncs failed", Unit: "count", Words: more, Quiet: true, Values: failedSyncs, OfRuns: true},
	{Name: "violations", Text: "Violations", Unit: "count", Words: more, Never: true, Values: violationValues, OfRuns: true},
}

// Machine is no figure of a subject: it says how fast the machine's caches were beside it.
var Machine = Figure{Name: string(raw.CacheLoad), Text: "Load from a cache", Unit: "s", Words: longer, Values: valuesOf(raw.CacheLoad)}

// Compared are the figures that the subjects of a cell are compared by.
var Compared = slices.DeleteFunc(slices.Clone(Figures), func(f Figure) bool { return f.OfRuns })

// Primary are the figures that verdicts are about, the most important first. Few are chosen beforehand, since of many ratios
// of equal subjects some would differ by chance. The others are exploratory: they say where to look.
var Primary = []string{FigureReaction, FigureNPL99, FigureCold, FigureFirstPacket, FigureFirstSYN, FigureConnection, FigureConnCPU, FigureCPU, FigureTotalRSS}

// FigureName returns the figure for the name in a scenario's target.
func FigureName(word string) string {
	if word == figurePacketKind {
		return FigureFirstPacket
	}
	return word
}

// FigureOf returns the figure of a name in Figures.
func FigureOf(name string) Figure {
	return Figures[slices.IndexFunc(Figures, func(f Figure) bool { return f.Name == FigureName(name) })]
}

// Named returns the figure of a name, without detail. Figures of one kind that have details are alike.
func Named(name string) (Figure, bool) {
	all := append(slices.Clone(Figures), packetKind("", ""), repair(""))
	if i := slices.IndexFunc(all, func(f Figure) bool { return f.Name == name }); i >= 0 {
		return all[i], true
	}
	return Figure{}, false
}

// Column is the figure's heading in a comparison. It marks the figures that only the subject reports.
func (f Figure) Column() string {
	if f.SelfReported {
		return f.Text + ", self-reported"
	}
	return f.Text
}

// Label is the figure's name in a table of two runs.
func (f Figure) Label() string {
	if f.Detail != "" {
		return f.Text + ", " + f.Detail
	}
	return f.Text
}

// RunFigures lists the figures of two samples of one cell, in the order of their table, with one for each fault and for each kind
// of packets.
func RunFigures(both ...*records.Samples) []Figure {
	var out []Figure
	for _, f := range Figures {
		switch f.Name {
		case FigureTotalRSS:
			if !slices.ContainsFunc(both, func(c *records.Samples) bool { return c.Has(raw.ChildPeakRSS) }) {
				continue // without tools, this figure equals the peak of the process
			}
		case FigureFirstPacket:
			f.Text = "First packet, last"
		case FigureFirstSYN:
			out = append(out, packetKinds(both)...)
		case "syncs_failed":
			out = append(out, repairs(both)...)
		}
		out = append(out, f)
	}
	return out
}
