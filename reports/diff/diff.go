package diff

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"synclab/reports/comparison"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/records"
	"synclab/scenarios"
)

// Diff compares two runs, or two subjects of one run. The repetition is the unit of every test and interval, since the
// values of one repetition depend on one another. Subjects of one run take turns and are paired. Two runs are not: the
// k-th repetition of one has no relation to the k-th of the other.
type Diff struct {
	Before records.RunHead `json:"before"`
	After  records.RunHead `json:"after"`
	// Pairs of subjects before and after, of one run; empty: two runs are compared.
	Pairs [][2]string `json:"pairs,omitempty"`
	// Unlike lists the differences between the runs' conditions. Warnings lists all other caveats about the runs.
	Unlike   []records.Unlike `json:"unlike,omitempty"`
	Warnings []string         `json:"warnings,omitempty"`
	Rows     []Delta          `json:"rows"`
	// Absent lists subjects in cells that only one of the runs has.
	Absent []Absent `json:"absent,omitempty"`
	// Tests is the number of p-values. The adjusted p-values are corrected for it (Benjamini-Hochberg); those of two subjects
	// for the tests of comparison.Primary figures, or for the others. An adjusted p-value above Level shows no difference.
	Tests      int     `json:"tests"`
	Correction string  `json:"correction"`
	Level      float64 `json:"level"`
	// Least is the smallest increase, as a share, that means anything where no scatter of runs is known. Scattered is the
	// number of figures for which it is.
	Least     float64 `json:"least_difference"`
	Scattered int     `json:"scattered,omitempty"`
	// RepetitionsNeeded of each run would suffice for a verdict on any figure that had too few, of two subjects on any primary
	// one; 0: none had too few.
	RepetitionsNeeded int `json:"repetitions_needed,omitempty"`

	primary func(*Delta) bool // of Options
}

// Delta is one figure of one subject in one cell, in the runs before and after.
type Delta struct {
	Subject string             `json:"subject"`
	Cell    records.Cell       `json:"cell"`
	Figure  string             `json:"figure"`
	Detail  string             `json:"detail,omitempty"` // which fault, or kind of packet
	Unit    string             `json:"unit"`
	Before  *estimate.Estimate `json:"before,omitempty"`
	After   *estimate.Estimate `json:"after,omitempty"`
	// RepetitionsBefore and RepetitionsAfter count the repetitions that have a value.
	RepetitionsBefore int `json:"repetitions_before"`
	RepetitionsAfter  int `json:"repetitions_after"`
	// Ratio is After divided by Before, as shown; nil if there is nothing to divide by.
	Ratio *float64 `json:"ratio,omitempty"`
	// Low and High bound the ratio with 95 % confidence, by ranks of the repetitions and the Scatter of runs; nil with
	// fewer than 4 repetitions of each. Of two subjects, by their pairs; nil with fewer than estimate.LeastPairs. They are not corrected for the other figures.
	Low  *float64 `json:"ratio_ci_low,omitempty"`
	High *float64 `json:"ratio_ci_high,omitempty"`
	// Scatter of runs in this figure, from a history; nil: estimate.UsualScatter.
	Scatter *estimate.Scatter `json:"scatter,omitempty"`
	// P is from a two-sided Mann-Whitney U test on the repetitions, or what the scatter of runs allows if that is more; of two
	// subjects, from estimate.PairedP. Adjusted is corrected for other Tests. Both are nil if the figure was compared
	// exactly, or not at all.
	P        *float64 `json:"p,omitempty"`
	Adjusted *float64 `json:"p_adjusted,omitempty"`
	Exact    bool     `json:"exact,omitempty"`
	Verdict  Verdict  `json:"verdict"`
	// Threshold is the share by which After may exceed Before; nil: no limit. Beyond: After exceeds it, by the same
	// test as for a difference.
	Threshold *float64 `json:"threshold,omitempty"`
	Beyond    bool     `json:"beyond_threshold,omitempty"`

	of       comparison.Figure
	design   estimate.Design
	va, vb   []float64 // by repetition
	beyondP  *float64
	ratio    *estimate.Ratio
	endlessA bool // stopped in every repetition of the run before, while this figure was measured; endlessB: after
	endlessB bool
}

// Verdict on a Delta.
type Verdict string

// The verdicts. Slower also means more of any other cost, Faster less.
const (
	Slower Verdict = "slower"
	Faster Verdict = "faster"
	Same   Verdict = "same" // no difference shown, and a difference as large as the threshold is unlikely
	// Unclear: no difference shown, but noise may hide a difference as large as the threshold.
	Unclear    Verdict = "unclear"
	TooFew     Verdict = "too-few"     // of repetitions: no difference could be shown
	OnlyBefore Verdict = "only-before" // not measured after
	OnlyAfter  Verdict = "only-after"
)

// Absent is a subject in a cell of only one run.
type Absent struct {
	Subject string       `json:"subject"`
	Cell    records.Cell `json:"cell"`
	Verdict Verdict      `json:"verdict"`
}

// DefaultThreshold is the share by which a figure may grow without other settings.
const DefaultThreshold = 0.10

// Options are thresholds, and what is known of earlier runs. Thresholds are the shares by which figures may grow. A figure's own threshold comes first, from the
// options or else from the scenario of the run after. Then follow the thresholds for all figures, in the same order,
// and DefaultThreshold. A negative share means no limit.
type Options struct {
	All     *float64
	Figures map[string]float64
	// Scatter returns that of runs in a figure, on the machine of the run after; nil: not known. It may be nil.
	Scatter func(Delta) *estimate.Scatter
	// OneRun compares pairs of subjects of one run, before and after, by default the two that the run has. Otherwise the
	// subjects of two runs that have the same name are compared.
	OneRun bool
	Pairs  [][2]string
	// Primary are the rows whose p-values are adjusted for each other only, since few questions were asked beforehand; nil:
	// those of the figures comparison.Primary. Of two runs, all rows are one family.
	Primary func(*Delta) bool
}

// ErrNothingInCommon: the runs have no subject in the same cell.
var ErrNothingInCommon = errors.New("have no subject in the same cell: nothing to compare")

// Known reports whether there is a figure of this name for a threshold.
func Known(name string) bool {
	return slices.Contains(scenarios.ThresholdFigures(), comparison.FigureName(name))
}

// Compare reads and compares the folders of two runs, or with OneRun two subjects of the first.
func Compare(before, after string, o Options) (*Diff, error) {
	for name := range o.Figures {
		if !Known(name) {
			return nil, fmt.Errorf("threshold for unknown figure %q: use one of %s", name, strings.Join(scenarios.ThresholdFigures(), ", "))
		}
	}
	var sides [2]*records.Collection
	for i, dir := range []string{before, after} {
		if i == 1 && o.OneRun {
			sides[1] = sides[0]
			break
		}
		run, err := records.Load(dir)
		if err != nil {
			return nil, err
		}
		sides[i] = records.Collect([]*records.Run{run})
	}
	pairs, err := o.pairs(before, sides[0])
	if err != nil {
		return nil, err
	}
	d := &Diff{Pairs: pairs, Before: records.RunHeads(sides[0])[0], After: records.RunHeads(sides[1])[0], Unlike: records.Unlikes(sides[0].Runs[0].Info, sides[1].Runs[0].Info),
		Correction: "Benjamini-Hochberg", Level: estimate.Level}
	d.warn(sides)
	d.collect(sides)
	if len(d.Rows) == 0 {
		return nil, fmt.Errorf("%s (%s) and %s (%s) %w", before, cellsText(sides[0]), after, cellsText(sides[1]), ErrNothingInCommon)
	}
	o.apply(d, sides[1].Runs[0].Info.Scenario.Thresholds)
	d.primary = o.Primary
	d.judge()
	return d, nil
}

// pairs returns the subjects of one run that are compared; nil: two runs are.
func (o Options) pairs(dir string, run *records.Collection) ([][2]string, error) {
	if !o.OneRun {
		return nil, nil
	}
	there := run.Runs[0].Info.Subjects
	pairs := o.Pairs
	if len(pairs) == 0 && len(there) == 2 {
		pairs = [][2]string{{there[0], there[1]}}
	}
	unknown := func(pair [2]string) bool {
		return pair[0] == pair[1] || !slices.Contains(there, pair[0]) || !slices.Contains(there, pair[1])
	}
	if len(pairs) == 0 || slices.ContainsFunc(pairs, unknown) {
		return nil, fmt.Errorf("%s has the subjects %s: name two of them, before and after", dir, doc.JoinWords(there))
	}
	return pairs, nil
}

func cellsText(c *records.Collection) string {
	var names []string
	for _, one := range c.Series {
		names = append(names, one.Subject)
	}
	if len(names) == 0 {
		return records.Title(c)
	}
	return doc.JoinWords(names) + " in " + records.Title(c)
}

// warn adds warnings about the runs.
func (d *Diff) warn(sides [2]*records.Collection) {
	times := []string{"before", "after"}
	if d.Pairs != nil {
		times = []string{"of both"}
	}
	for i, when := range times {
		l := sides[i].Runs[0]
		if l.Info.Status != "complete" {
			text := "the run " + when + " is not complete: its status is " + cmp.Or(l.Info.Status, "unknown")
			if l.Info.Reason != "" {
				text += " (" + l.Info.Reason + ")"
			}
			d.Warnings = append(d.Warnings, text)
		}
		for _, w := range l.Warnings {
			d.Warnings = append(d.Warnings, "the run "+when+": "+w)
		}
	}
	if a, b := sides[0].Runs[0], sides[1].Runs[0]; d.Pairs == nil && a.Info.ID == b.Info.ID && a.Info.Started.Equal(b.Info.Started) {
		d.Warnings = append(d.Warnings, "both are the same run: "+a.Info.ID)
	}
	for i, when := range times {
		for _, note := range comparison.Stopped(sides[i]) {
			d.Warnings = append(d.Warnings, when+": "+note)
		}
	}
}

// collect makes the rows: for the subjects of each cell, in the order of the run before, one for each figure.
func (d *Diff) collect(sides [2]*records.Collection) {
	var cells []records.Cell
	for _, side := range sides {
		cells = append(cells, side.Cells...)
	}
	slices.SortStableFunc(cells, func(a, b records.Cell) int { return a.ID().Compare(b.ID()) })
	cells = slices.CompactFunc(cells, func(a, b records.Cell) bool { return a.ID() == b.ID() })
	var subjects []string
	for _, side := range sides {
		for _, one := range side.Series {
			subjects = append(subjects, one.Subject)
		}
	}
	design := estimate.Unpaired
	var pairs [][2]string
	for _, subject := range records.Distinct(subjects) {
		pairs = append(pairs, [2]string{subject, subject})
	}
	if d.Pairs != nil {
		design, pairs = estimate.Paired, d.Pairs
	}
	for _, cell := range cells {
		for _, pair := range pairs {
			a, b := sides[0].Samples(pair[0], cell), sides[1].Samples(pair[1], cell)
			switch {
			case a != nil && b != nil:
				d.Rows = append(d.Rows, deltas(design, pair[1], cell, a, b)...)
			case a != nil:
				d.Absent = append(d.Absent, Absent{pair[0], cell, OnlyBefore})
			case b != nil:
				d.Absent = append(d.Absent, Absent{pair[1], cell, OnlyAfter})
			}
		}
	}
}

// deltas returns the figures of one subject in one cell, without verdicts.
func deltas(design estimate.Design, subject string, cell records.Cell, a, b *records.Samples) []Delta {
	var out []Delta
	source := comparison.SourceOf([]*records.Samples{a, b})
	exceededA, exceededB := comparison.ExceededOf(a), comparison.ExceededOf(b)
	for _, f := range comparison.RunFigures(a, b) {
		before, after := f.Of(a, source, exceededA), f.Of(b, source, exceededB)
		if before == nil && after == nil || f.Quiet && zero(before) && zero(after) {
			continue
		}
		row := Delta{Subject: subject, Cell: cell, Figure: f.Name, Detail: f.Detail, Unit: f.Unit, Before: before, After: after, of: f, design: design}
		if before != nil {
			row.va = before.Values()
		}
		if after != nil {
			row.vb = after.Values()
		}
		row.RepetitionsBefore, row.RepetitionsAfter = len(row.va), len(row.vb)
		row.endlessA, row.endlessB = endless(f.Name, row.va, exceededA), endless(f.Name, row.vb, exceededB)
		out = append(out, row)
	}
	return out
}

// endless reports whether the subject was stopped in every repetition, while this figure was measured.
func endless(name string, values []float64, exceeded []comparison.Exceeded) bool {
	n := 0
	for _, e := range exceeded {
		if e.Figure == name {
			n++
		}
	}
	return n > 0 && n >= len(values)
}

// zero reports whether a figure was always zero or not measured.
func zero(f *estimate.Estimate) bool {
	return f == nil || !slices.ContainsFunc(f.Values(), func(v float64) bool { return v != 0 })
}

// Usual is the scatter of runs where none is known.
func (d *Diff) Usual() float64 { return estimate.UsualScatter.Share }

// apply sets the threshold of each row, and the scatter of runs.
func (o Options) apply(d *Diff, scenario map[string]float64) {
	for i := range d.Rows {
		r := &d.Rows[i]
		r.Threshold = o.Threshold(scenario, r.Figure, DefaultThreshold)
		if o.Scatter == nil {
			continue
		}
		if r.Scatter = o.Scatter(*r); r.Scatter != nil {
			d.Scattered++
		}
	}
}

// Threshold is the share by which a figure may grow: its own, else that of all figures, else usual; nil: no limit. The
// options come before the scenario. All kinds of packets have the threshold of the last Service.
func (o Options) Threshold(scenario map[string]float64, figure string, usual float64) *float64 {
	name := comparison.FigureName(figure)
	own := func(of map[string]float64) (share float64, ok bool) {
		for word, v := range of {
			if comparison.FigureName(word) == name {
				share, ok = v, true
			}
		}
		return share, ok
	}
	share, ok := own(o.Figures)
	if !ok {
		share, ok = own(scenario)
	}
	if !ok && o.All != nil {
		share, ok = *o.All, true
	}
	if !ok {
		share, ok = scenario[scenarios.ThresholdAll]
	}
	if !ok {
		share = usual
	}
	if share < 0 {
		return nil
	}
	return &share
}

// Beyond returns the rows that exceed their thresholds.
func (d *Diff) Beyond() []Delta {
	return slices.DeleteFunc(slices.Clone(d.Rows), func(r Delta) bool { return !r.Beyond })
}
