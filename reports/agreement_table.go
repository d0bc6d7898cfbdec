package reports

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// costTexts describe the source of the simulator's sync durations.
var costTexts = map[string]string{OwnCost: "simulator, own sync times", ModelCost: "simulator, cost model"}

// Table writes measured and predicted values for a terminal.
func (a *Agreement) Table(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "The simulator compared with run %s: network programming latency, %d seeds from %d", a.Run, a.Seeds, a.Seed)
	if a.Model != "" {
		fmt.Fprintf(&b, ", cost model of %s", a.Model)
	}
	b.WriteString("\n\n")
	t := textTable{header: []string{"", "p50", "p90", "p99", "syncs", "CPU", ""}}
	for _, c := range a.Cells {
		t.heading(fmt.Sprintf("%s: %s changes", c.title(), Grouped(int64(c.Changes))))
		m := c.Measured
		t.add("measured", m.P50.text(""), m.P90.text(""), m.P99.text(""), plainCount(m.Syncs), busyText(m.CPUShare), "")
		for _, s := range c.Twins {
			verdict := "agrees"
			if !s.Within {
				verdict = "differs"
			}
			t.add(costTexts[s.Cost], s.P50.text(), s.P90.text(), s.P99.text(), plainCount(s.Syncs.Value), busyText(s.CPUShare), verdict)
		}
	}
	t.write(&b)
	fmt.Fprintf(&b, "\n%s\n", wrap(fmt.Sprintf("measured: all repetitions together; ± the largest deviation of a repetition, if there are several. Simulator: median over seeds, "+
		"± the 5th and 95th percentile; × the ratio to the measured value. Agrees: all three within %.0f %%.", 100*a.Within), tableWidth, ""))
	for _, sentence := range a.sentences() {
		b.WriteString("\n" + wrap(sentence, tableWidth, "  ") + "\n")
	}
	for _, remark := range a.Remarks {
		b.WriteString("\n" + wrap("remark: "+remark, tableWidth, "  "))
	}
	if len(a.Remarks) > 0 {
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// text formats a spread, "523 ms ±3%", and a text behind it.
func (s Spread) text(behind string) string {
	text := Format(s.Value, "s")
	if s.Low != nil && s.Value > 0 {
		text += fmt.Sprintf(" ±%.0f%%", math.Ceil(100*max(s.Value-*s.Low, *s.High-s.Value)/s.Value))
	}
	return text + behind
}

func (p Predicted) text() string { return p.Spread.text(fmt.Sprintf(" ×%.2f", p.Ratio)) }

func plainCount(v float64) string { return Grouped(int64(math.Round(v))) }

func busyText(share *float64) string {
	if share == nil {
		return "–"
	}
	return fmt.Sprintf("%.0f %%", 100**share)
}

// sentences state how many predictions are within the allowed error.
func (a *Agreement) sentences() []string {
	var out []string
	for _, cost := range []string{OwnCost, ModelCost} {
		within, all, cells, worst := 0, 0, 0, 1.0
		where := ""
		for _, c := range a.Cells {
			for _, s := range c.Twins {
				if s.Cost != cost {
					continue
				}
				cells++
				for name, p := range map[string]Predicted{"p50": s.P50, "p90": s.P90, "p99": s.P99} {
					all++
					if p.Within {
						within++
					}
					if off := math.Abs(math.Log(p.Ratio)); off > math.Abs(math.Log(worst)) || off == math.Abs(math.Log(worst)) && where > name {
						worst, where = p.Ratio, name+" of "+c.title()
					}
				}
			}
		}
		if all == 0 {
			continue
		}
		what := "With the run's own sync times, which tests the sync loop alone,"
		if cost == ModelCost {
			what = "With the cost model of " + a.Model + ", fitted without this run,"
		}
		out = append(out, fmt.Sprintf("%s %d of %d quantiles are within %.0f %%; the farthest is ×%.2f: %s.", what, within, all, 100*a.Within, worst, where))
	}
	return out
}
