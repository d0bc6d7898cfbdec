package scenarios

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ThresholdAll is the key of the threshold for all figures that are not named.
const ThresholdAll = "all"

// thresholdFigures are the keys of thresholds besides ThresholdAll: what `synclab diff` compares. A test in reports
// compares the two lists.
var thresholdFigures = []string{
	"reaction", "cold_start", "full_sync", "partial_sync", "full_sync_kernel", "partial_sync_kernel", "restore", "restores",
	"network_programming_latency_p50", "network_programming_latency_p99", "cold_start_cpu", "cpu_per_change",
	"peak_rss", "child_peak_rss", "total_peak_rss", "first_packet_first", "first_packet_last", "first_packet_miss",
	"first_packet_tcp_last", "rules", "elements", "chains", "partial_sync_listing", "partial_sync_restore",
	"full_sync_listing", "full_sync_bytes", "partial_sync_bytes", "kernel_memory", "iptables_wait_p50",
	"iptables_wait_p99", "iptables_wait_longest", "nft_wait_p50", "nft_wait_p99", "nft_wait_longest", "schedule_gap",
	"connection_time", "connection_cpu",
	"flow_p50", "flow_p99", "flows_failed", "flows_misrouted", "fault_repaired", "syncs_failed", "violations",
}

// ThresholdFigures lists the figures that can have a threshold.
func ThresholdFigures() []string { return slices.Clone(thresholdFigures) }

// ThresholdLines describes the thresholds in words, sorted, with ThresholdAll last.
func (s *Scenario) ThresholdLines() []string {
	var lines []string
	for _, figure := range slices.Sorted(maps.Keys(s.Thresholds)) {
		if figure != ThresholdAll {
			lines = append(lines, thresholdLine(strings.ReplaceAll(figure, "_", " "), s.Thresholds[figure]))
		}
	}
	if most, ok := s.Thresholds[ThresholdAll]; ok {
		which := "every figure"
		if len(lines) > 0 {
			which = "every other figure"
		}
		lines = append(lines, thresholdLine(which, most))
	}
	return lines
}

func thresholdLine(figure string, most float64) string {
	return fmt.Sprintf("%s: at most %.4g %% more than before", figure, 100*most)
}
