package sections

import (
	"fmt"
	"slices"

	"synclab/bench/raw"
	"synclab/reports/doc"
	"synclab/reports/records"
)

// Stalls are the stalls that the kernel logged during the repetitions of a series.
type Stalls struct {
	Series string
	Cells  []records.Cell // in which there were any
	// Times counts the stalls, Repetitions those that had any, and Of those whose log was read.
	Times, Repetitions, Of int
	Longest                float64 // in seconds; 0: the kernel does not say
	Kinds, Tasks           []string
}

// AllStalls has one entry for each series whose repetitions had stalls.
func (s *Summary) AllStalls() []Stalls {
	var out []Stalls
	for _, one := range s.Collected.Series {
		all := Stalls{Series: one.Name}
		for _, cell := range s.Collected.Cells {
			samples := one.Cells[cell.ID()]
			if samples == nil {
				continue
			}
			before := all.Times
			for _, r := range samples.Records {
				switch r.Metric {
				case raw.KernelStalls:
					all.Of++
					all.Repetitions += int(min(r.Value, 1))
				case raw.KernelStall:
					all.Times++
					all.Longest = max(all.Longest, r.Value)
					all.Kinds = addOnce(all.Kinds, r.Kind)
					all.Tasks = addOnce(all.Tasks, r.Task)
				}
			}
			if all.Times > before {
				all.Cells = append(all.Cells, cell)
			}
		}
		if all.Times > 0 {
			out = append(out, all)
		}
	}
	return out
}

func addOnce(list []string, text string) []string {
	if text == "" || slices.Contains(list, text) {
		return list
	}
	return append(list, text)
}

// unobservedStalls warns of repetitions without a readable kernel log.
func unobservedStalls(c *records.Collection) []warning {
	n, why := 0, ""
	for _, one := range c.Series {
		for _, cell := range c.Cells {
			if samples := one.Cells[cell.ID()]; samples != nil {
				for _, r := range samples.Records {
					if r.Metric == raw.StallsUnobserved {
						n, why = n+1, r.Error
					}
				}
			}
		}
	}
	if n == 0 {
		return nil
	}
	return []warning{{text: fmt.Sprintf("stalls of the kernel were not observed in %s: %s", doc.Plural(n, "repetition"), why)}}
}
