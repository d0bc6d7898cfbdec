package comparison

import (
	"fmt"
	"io"
	"text/tabwriter"

	"synclab/bench/lab/machine"
	"synclab/reports/doc"
	"synclab/reports/estimate"
)

// WriteLoops prints how long each loop took on the first kernel, the median of the rounds, and the ratio of each other
// kernel's time to it. A ratio is taken within a round.
func WriteLoops(w io.Writer, kernels []machine.LoopKernel, times [][][]machine.Loop) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "loop\t%s", kernels[0].Name)
	for _, k := range kernels[1:] {
		fmt.Fprintf(t, "\t× on %s", k.Name)
	}
	fmt.Fprintln(t)
	for i, loop := range times[0][0] {
		own := secondsOf(times[0], i)
		fmt.Fprintf(t, "%s\t%s", loop.Name, doc.Format(estimate.Median(own), "s"))
		for k := range kernels[1:] {
			ratios := secondsOf(times[k+1], i)
			for round := range ratios {
				ratios[round] /= own[round]
			}
			fmt.Fprintf(t, "\t%s", twoDigits(estimate.Median(ratios)))
			if low, high, ok := estimate.MedianInterval(ratios); ok {
				fmt.Fprintf(t, " (%s to %s)", twoDigits(low), twoDigits(high))
			}
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// secondsOf returns a loop's times by round.
func secondsOf(rounds [][]machine.Loop, loop int) []float64 {
	var out []float64
	for _, round := range rounds {
		out = append(out, round[loop].Seconds)
	}
	return out
}

func twoDigits(v float64) string {
	if v >= 10 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}
