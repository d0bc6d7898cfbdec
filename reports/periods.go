package reports

import (
	"slices"

	"synclab/bench/raw"
	"synclab/reports/records"
)

// The swept fields of a sync-period scenario.
const (
	periodField = "proxy.minSyncPeriod"
	policyField = "proxy.policy"
)

// periodLine is one series under one policy, by minSyncPeriod.
type periodLine struct {
	series int
	policy string
	cells  []records.Cell
}

// periodLines groups the cells of the largest size by series and policy. It returns lines with at least two periods.
func periodLines(s *Summary) []periodLine {
	largest := 0
	for _, cell := range s.collected.Cells {
		if cell.Params[periodField] != "" {
			largest = max(largest, cell.Services)
		}
	}
	var lines []periodLine
	for i, one := range s.collected.Series {
		for _, cell := range s.collected.Cells {
			_, ok := records.Quantity(cell.Params[periodField])
			if !ok || cell.Services != largest || len(one.Of(cell, raw.NetworkProgrammingLatency)) == 0 {
				continue
			}
			policy := cell.Params[policyField]
			at := slices.IndexFunc(lines, func(l periodLine) bool { return l.series == i && l.policy == policy })
			if at < 0 {
				lines = append(lines, periodLine{series: i, policy: policy})
				at = len(lines) - 1
			}
			lines[at].cells = append(lines[at].cells, cell)
		}
	}
	return slices.DeleteFunc(lines, func(l periodLine) bool { return len(l.cells) < 2 })
}
