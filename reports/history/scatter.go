package history

import (
	"math"
	"slices"

	"github.com/montanaflynn/stats"

	"synclab/reports/diff"
	"synclab/reports/estimate"
)

// leastScatter is the number of runs of one level from which on their scatter is used.
const leastScatter = 5

// Scatter returns how much the runs of a figure differ on a kind of machine: those of the newest level, less what their
// repetitions explain. nil: too few runs.
func (h *History) Scatter(machine string) func(diff.Delta) *estimate.Scatter {
	return func(of diff.Delta) *estimate.Scatter {
		i := slices.IndexFunc(h.Trends, func(t Trend) bool {
			return t.Machine == machine && t.Subject == of.Subject && t.Cell.ID() == of.Cell.ID() && t.Figure == of.Figure && t.Detail == of.Detail
		})
		if i < 0 {
			return nil
		}
		t := h.Trends[i]
		values := t.Values[t.Levels[len(t.Levels)-1].From:]
		var logs, within []float64
		for _, v := range values {
			if own := logsOf(v.Estimate.Values()); v.Value > 0 && len(own) > 1 {
				variance, _ := stats.SampleVariance(own)                                                             // there are values
				logs, within = append(logs, math.Log(v.Value)), append(within, math.Pi/2*variance/float64(len(own))) // of a median
			}
		}
		if len(logs) < leastScatter {
			return nil
		}
		variance, _ := stats.SampleVariance(logs)
		explained, _ := stats.Mean(within)
		variance = max(0, variance-explained)
		return &estimate.Scatter{Share: math.Sqrt(variance), Runs: len(logs)}
	}
}

func logsOf(values []float64) (logs []float64) {
	for _, v := range values {
		if v > 0 {
			logs = append(logs, math.Log(v))
		}
	}
	return logs
}
