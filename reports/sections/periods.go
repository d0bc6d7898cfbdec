package sections

import (
	"slices"

	"synclab/bench/raw"
	"synclab/reports/records"
)

// The swept fields of a sync-period scenario.
const (
	PeriodField = "proxy.minSyncPeriod"
	policyField = "proxy.policy"
)

// periodLine is one series under one policy, by minSyncPeriod.
type periodLine struct {
	Series int
	Policy string
	Cells  []records.Cell
}

// PeriodLines groups the cells of the largest size by series and policy. It returns lines with at least two periods.
func PeriodLines(s *Summary) []periodLine {
	largest := 0
	for _, cell := range s.Collected.Cells {
		if cell.Params[PeriodField] != "" {
			largest = max(largest, cell.Services)
		}
	}
	var lines []periodLine
	for i, one := range s.Collected.Series {
		for _, cell := range s.Collected.Cells {
			_, ok := records.Quantity(cell.Params[PeriodField])
			if !ok || cell.Services != largest || len(one.Of(cell, raw.NetworkProgrammingLatency)) == 0 {
				continue
			}
			policy := cell.Params[policyField]
			at := slices.IndexFunc(lines, func(l periodLine) bool { return l.Series == i && l.Policy == policy })
			if at < 0 {
				lines = append(lines, periodLine{Series: i, Policy: policy})
				at = len(lines) - 1
			}
			lines[at].Cells = append(lines[at].Cells, cell)
		}
	}
	return slices.DeleteFunc(lines, func(l periodLine) bool { return len(l.Cells) < 2 })
}
