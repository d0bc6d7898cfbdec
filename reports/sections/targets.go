package sections

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"

	"synclab/bench/raw"
	"synclab/reports/comparison"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/records"
	"synclab/scenarios"
)

// TargetResult is the result of one of a scenario's targets.
type TargetResult struct {
	Scenario string `json:"scenario"`
	scenarios.Target
	// Own is the figure of the Subject, and Other the figure of its baseline, in Unit; absent if not measured.
	Own   *float64 `json:"own,omitempty"`
	Other *float64 `json:"other,omitempty"`
	Unit  string   `json:"unit"`
	// OwnRepetitions and OtherRepetitions are the numbers of repetitions behind these medians.
	OwnRepetitions   int `json:"own_repetitions,omitempty"`
	OtherRepetitions int `json:"other_repetitions,omitempty"`
	// Reached is the ratio, the duration in seconds or the exponent, depending on the target, with its 95 % confidence
	// interval if there is one.
	Reached *float64 `json:"result,omitempty"`
	Low     *float64 `json:"ci_low,omitempty"`
	High    *float64 `json:"ci_high,omitempty"`
	// Bound is "lower" if the baseline was stopped: the real ratio is larger.
	Bound string `json:"bound,omitempty"`
	// Verdict is met or missed by the interval, unclear if the interval contains the limit, observed without an
	// interval, not measured, or unknown if the subject was stopped too early.
	Verdict string `json:"verdict"`
}

// The verdicts.
const (
	VerdictMet         = "met"
	VerdictMissed      = "missed"
	VerdictNotMeasured = "not measured"
	VerdictUnknown     = "unknown"
	VerdictUnclear     = "unclear"
	VerdictObserved    = "observed"
)

// targetResults judges the targets of the runs' scenarios, except those with subjects that were not selected.
func targetResults(c *records.Collection, s *Summary) []TargetResult {
	var out []TargetResult
	seen := map[string]bool{}
	asked := map[string]bool{} // by scenario and subject
	for _, l := range c.Runs {
		for _, subject := range l.Info.Subjects {
			asked[l.Info.Scenario.Name+" "+subject] = true
		}
	}
	for _, l := range c.Runs {
		for _, target := range l.Info.Scenario.Targets {
			key := l.Info.Scenario.Name + fmt.Sprint(target)
			beside := cmp.Or(target.Beside, target.Subject)
			if seen[key] || !asked[l.Info.Scenario.Name+" "+target.Subject] || !asked[l.Info.Scenario.Name+" "+beside] {
				continue
			}
			seen[key] = true
			r := TargetResult{Scenario: l.Info.Scenario.Name, Target: target, Verdict: VerdictNotMeasured, Unit: comparison.FigureOf(target.Figure).Unit}
			switch {
			case target.Exponent != 0:
				r.judgeExponent(c)
			default:
				r.judgeFigure(s)
			}
			out = append(out, r)
		}
	}
	return out
}

// judgeFigure judges a ratio or a duration.
func (r *TargetResult) judgeFigure(s *Summary) {
	times := r.AtMost > 0 && r.Unit == "s"
	own, other := s.FigureOf(r.Scenario, r.Services, r.Subject, r.Figure, times), s.FigureOf(r.Scenario, r.Services, r.Beside, r.Figure, times)
	if own != nil {
		r.Own, r.OwnRepetitions = &own.Value, own.Repetitions()
	}
	if other != nil {
		r.Other, r.OtherRepetitions = &other.Value, other.Repetitions()
	}
	if r.AtMost > 0 {
		if own != nil {
			r.Reached, r.Low, r.High = &own.Value, own.Low, own.High
			r.Verdict = r.judge(r.AtMost.Seconds(), false)
			if own.AtLeast && own.Value <= r.AtMost.Seconds() {
				r.Verdict = VerdictUnknown
			} else if own.AtLeast {
				r.Verdict = VerdictMissed
			}
		}
		return
	}
	ratio, ok := comparison.Compare(own, other)
	if !ok {
		return
	}
	r.Reached, r.Low, r.High, r.Bound = &ratio.Ratio, ratio.Low, ratio.High, ratio.Bound
	switch {
	case ratio.Bound == "":
		if r.Verdict = r.judge(r.Times, true); r.Unit == "count" && own.Constant() && other.Constant() {
			r.Verdict = verdictIf(ratio.Ratio >= r.Times) // counted exactly
		}
	case ratio.Bound == "lower" == (ratio.Ratio >= r.Times):
		r.Verdict = verdictIf(ratio.Bound == "lower")
	default:
		r.Verdict = VerdictUnknown
	}
}

// judge compares the interval with the limit: a limit inside the interval is neither met nor missed. Without an
// interval the verdict is observed.
func (r *TargetResult) judge(limit float64, atLeast bool) string {
	switch {
	case r.Low == nil:
		return VerdictObserved
	case *r.Low >= limit && atLeast, *r.High <= limit && !atLeast:
		return VerdictMet
	case *r.High < limit && atLeast, *r.Low > limit && !atLeast:
		return VerdictMissed
	}
	return VerdictUnclear
}

// judgeExponent fits the growth between the two sizes, as growths does over all sizes.
func (r *TargetResult) judgeExponent(c *records.Collection) {
	var points []estimate.Point
	from, to := math.Inf(1), math.Inf(-1)
	for _, one := range c.Series {
		if one.Subject != r.Subject {
			continue
		}
		cells := judgedCells(c, r.Scenario, false)
		for _, cell := range cells {
			// Growth is that of one setting.
			if maps.Equal(cell.Params, cells[0].Params) && cell.Services >= r.From && cell.Services <= r.Services {
				if values := figureValues(one.Cells[cell.ID()], r.Figure); len(values) > 0 {
					x := float64(cell.Services)
					points, from, to = append(points, estimate.Point{X: x, Y: values}), min(from, x), max(to, x)
				}
			}
		}
		break // the first of several runs
	}
	if from > float64(r.From) || to < float64(r.Services) {
		return
	}
	if law, ok := estimate.FitPower(points); ok {
		r.Reached, r.Low, r.High = &law.Slope, law.SlopeLow, law.SlopeHigh
		r.Verdict = r.judge(r.Exponent, false)
	}
}

// figureValues are a figure's values by repetition. It is nil if a repetition was stopped, since values are then
// bounds.
func figureValues(c *records.Samples, name string) estimate.Sample {
	if c == nil {
		return nil
	}
	f := comparison.FigureOf(name).Of(c, comparison.SameSource{}, comparison.ExceededOf(c))
	if f == nil || f.Stopped {
		return nil
	}
	out := estimate.Sample{}
	for _, v := range f.ByRepetition {
		out[v.Repetition] = []float64{v.Value}
	}
	return out
}

func verdictIf(met bool) string {
	if met {
		return VerdictMet
	}
	return VerdictMissed
}

// judgedCells are the cells of a scenario that its targets are about: those on the machine's own kernel, without profiles. A
// kernel in user mode has other times. Where a run has only such cells, ratios of two subjects are judged, and no times.
func judgedCells(c *records.Collection, scenario string, times bool) []records.Cell {
	of := func(wanted func(records.Cell) bool) (cells []records.Cell) {
		for _, cell := range c.Cells {
			if cell.Scenario == scenario && cell.Params[raw.ProfileField] != raw.ProfileOn && wanted(cell) {
				cells = append(cells, cell)
			}
		}
		return cells
	}
	own := of(func(cell records.Cell) bool { return !cell.InGuest() })
	if len(own) > 0 || times {
		return own
	}
	return of(func(records.Cell) bool { return true })
}

// FigureOf returns a subject's figure at a size; nil if not measured. times: its own value is judged, not only a ratio.
func (s *Summary) FigureOf(scenario string, services int, subject, name string, times bool) *estimate.Estimate {
	for _, cell := range judgedCells(s.Collected, scenario, times) {
		if cell.Services != services {
			continue
		}
		for _, side := range comparison.SidesOf(s.Collected, cell) {
			if side.Subject == subject {
				return side.Figure(name)
			}
		}
	}
	return nil
}

// Wanted is the target's text, "≥ 25×". reached is the text of the result, "31× (28 … 33×)".
func (r TargetResult) Wanted() string {
	switch {
	case r.Times > 0:
		return "≥ " + strconv.FormatFloat(r.Times, 'f', -1, 64) + "×"
	case r.AtMost > 0:
		return "≤ " + doc.TrimTick(doc.Format(r.AtMost.Seconds(), "s"))
	}
	return fmt.Sprintf("n^%v at most, from %s", r.Exponent, doc.Grouped(int64(r.From)))
}

func (r TargetResult) ReachedText(interval bool) string {
	if r.Reached == nil {
		return "–"
	}
	text := func(v float64) string { return comparison.Times(v) + "×" }
	switch {
	case r.AtMost > 0:
		text = func(v float64) string { return doc.Format(v, "s") }
	case r.Exponent != 0:
		text = func(v float64) string {
			return "n^" + strings.Replace(strconv.FormatFloat(v, 'f', 2, 64), "-0.00", "0.00", 1)
		}
	}
	out := text(*r.Reached)
	if r.Bound == "lower" {
		out = "> " + out
	}
	if interval && r.Low != nil && r.High != nil {
		out += " (" + text(*r.Low) + " … " + text(*r.High) + ")"
	}
	return out
}

func (r TargetResult) valueText(v *float64) string {
	if v == nil {
		return "–"
	}
	return doc.Format(*v, r.Unit)
}

// targetsSection shows the scenario's targets beside what was measured.
func (s *Summary) targetsSection() doc.Section {
	out := doc.Section{ID: "targets", Title: "Targets", Dense: true}
	if len(s.Targets) == 0 {
		return out
	}
	out.Add(doc.Block{On: doc.Page, Soft: true,
		Note: "The scenario's targets and the measured values. A ratio divides the two figures. Its 95 % confidence interval is from the repetitions."})
	t := &doc.Table{Columns: []doc.Column{{Name: "Subject"}, {Name: "Figure"}, {Name: "Services", Numeric: true}, {Name: "Baseline", On: doc.Page | doc.Markdown},
		{Name: "Baseline's figure", Short: "baseline", Legend: "baseline: its figure", Numeric: true},
		{Name: "Subject's figure", Short: "measured", Legend: "measured: the subject's figure", Numeric: true}, {Name: "Target", Numeric: true},
		{Name: "Result", Legend: "n^x: grows with this power of the number of Services", Numeric: true, Title: "with the 95 % confidence interval, if there are enough repetitions"},
		{Name: "Verdict"}}}
	for _, r := range s.Targets {
		t.Add(s.subjectCell(r.Subject), doc.Cell{Text: comparison.FigureOf(r.Figure).Text, Terminal: doc.LowerFirst(comparison.FigureOf(r.Figure).Text)}, doc.Int(r.Services), doc.Text(r.Beside),
			measuredCell(r.valueText(r.Other), r.OtherRepetitions), measuredCell(r.valueText(r.Own), r.OwnRepetitions),
			doc.Cell{Text: r.Wanted(), Narrow: strings.Replace(r.Wanted(), " at most", "", 1)}, doc.Cell{Text: r.ReachedText(true), Narrow: r.ReachedText(false)},
			doc.Cell{Text: r.Verdict, Faint: r.Verdict == VerdictNotMeasured})
	}
	out.Add(doc.Block{Table: t})
	return out
}

// measuredCell adds the number of repetitions below a figure: some subjects are measured only once.
func measuredCell(text string, repetitions int) doc.Cell {
	cell := doc.Cell{Text: text, Markdown: text}
	if repetitions > 0 {
		cell.Sub = doc.Plural(repetitions, "repetition")
	}
	return cell
}
