package agreement

import (
	"fmt"
	"io"
	"math"

	"synclab/reports/doc"
)

// costTexts describe the source of the simulator's sync durations.
var costTexts = map[string]string{OwnCost: "simulator, own sync times", ModelCost: "simulator, cost model"}

// Table writes measured and predicted values for a terminal.
func (a *Agreement) Table(w io.Writer) error { return a.document().Text(w) }

// Page writes them as a page.
func (a *Agreement) Page(w io.Writer) error { return a.document().Page(w) }

// document says how many predictions are within the allowed error, and has the values of each cell.
func (a *Agreement) document() *doc.Document {
	verdict, values := doc.Section{ID: "verdict", Title: "Verdict"}, doc.Section{ID: "values", Title: "Measured and simulated"}
	var lines []doc.Line
	for _, one := range a.summaries() {
		line := doc.Line{Level: doc.Care, Text: doc.Sentence(agreementResult, one)}
		if one.Inside == one.All {
			line.Level = doc.Good
		}
		lines = append(lines, line)
	}
	verdict.Add(doc.Block{Verdict: lines})
	if len(a.Remarks) > 0 {
		verdict.Add(doc.Block{Warn: true, Heading: "Remarks", List: a.Remarks})
	}
	values.Add(doc.Block{Table: a.table()})
	return &doc.Document{Kind: "synclab simulate", Title: "Does the simulator agree with run " + a.Run + "?", Subtitle: doc.Sentence(agreementTitle, a), Sections: []doc.Section{verdict, values}}
}

// table has a heading for each subject in each cell, and below it the measured and the predicted values.
func (a *Agreement) table() *doc.Table {
	t := &doc.Table{Note: doc.Sentence(agreementNote, 100*a.Within), Columns: []doc.Column{{Name: "Source"}, {Name: "p50", Numeric: true}, {Name: "p90", Numeric: true},
		{Name: "p99", Numeric: true}, {Name: "syncs", Numeric: true}, {Name: "CPU", Numeric: true}, {Name: "Verdict"}}}
	for _, c := range a.Cells {
		t.Heading(c.title() + ": " + doc.Grouped(int64(c.Changes)) + " changes")
		m := c.Measured
		t.Add(doc.Text("measured"), m.P50.cell(), m.P90.cell(), m.P99.cell(), roundedCell(m.Syncs), busyCell(m.CPUShare), doc.Cell{})
		for _, s := range c.Simulations {
			verdict := "agrees"
			if !s.Within {
				verdict = "differs"
			}
			t.Add(doc.Text(costTexts[s.Cost]), s.P50.cell(), s.P90.cell(), s.P99.cell(), roundedCell(s.Syncs.Value), busyCell(s.CPUShare), doc.Text(verdict))
		}
	}
	return t
}

// cell is a duration and its bounds: "523 ms ± 3 %".
func (s Spread) cell() doc.Cell {
	cell := doc.Value(s.Value, "s")
	if s.Low != nil && s.Value > 0 {
		cell.Text += fmt.Sprintf(" ± %.0f %%", math.Ceil(100*max(s.Value-*s.Low, *s.High-s.Value)/s.Value))
	}
	return cell
}

// cell is a predicted duration, and its ratio to the measured one.
func (p Predicted) cell() doc.Cell {
	cell := p.Spread.cell()
	cell.Text += fmt.Sprintf(" ×%.2f", p.Ratio)
	return cell
}

func roundedCell(v float64) doc.Cell { return doc.Int(int(math.Round(v))) }

func busyCell(share *float64) doc.Cell {
	if share == nil {
		return doc.None()
	}
	return doc.Cell{Text: fmt.Sprintf("%.0f %%", 100**share), Value: doc.Exact(*share)}
}

// agreementSummary counts the predictions within the allowed error, in percent, and has the worst ratio.
type agreementSummary struct {
	Model         string // the run of the cost model; empty: the run's own sync times
	Inside, All   int
	Within, Worst float64
	Where         string // the quantile and the cell of the worst ratio
}

// summaries has one summary for each source of sync durations.
func (a *Agreement) summaries() []agreementSummary {
	var out []agreementSummary
	for _, cost := range []string{OwnCost, ModelCost} {
		sum := agreementSummary{Within: 100 * a.Within, Worst: 1}
		if cost == ModelCost {
			sum.Model = a.Model
		}
		for _, c := range a.Cells {
			for _, s := range c.Simulations {
				if s.Cost != cost {
					continue
				}
				for name, p := range map[string]Predicted{"p50": s.P50, "p90": s.P90, "p99": s.P99} {
					sum.All++
					if p.Within {
						sum.Inside++
					}
					off, worst := math.Abs(math.Log(p.Ratio)), math.Abs(math.Log(sum.Worst))
					if off > worst || off == worst && sum.Where > name {
						sum.Worst, sum.Where = p.Ratio, name+" of "+c.title()
					}
				}
			}
		}
		if sum.All > 0 {
			out = append(out, sum)
		}
	}
	return out
}
