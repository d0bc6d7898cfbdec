package page

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot/vg"

	"synclab/reports/capacity"
	"synclab/reports/doc"
	"synclab/reports/figure"
	"synclab/reports/model"
	"synclab/reports/records"
)

// The sections of the plan's report, in its order. Those without content have no blocks.

// answerSection has the answer. With the change of backend and the command, it is all of capacity.md.
func (r *report) answerSection() doc.Section {
	s := doc.Section{ID: "answer", Title: "In more words", Short: "Words", Dense: true}
	s.Add(doc.Block{List: r.Words}, doc.Block{HTML: basesHTML()}, doc.Block{Table: r.answerTable()},
		doc.Block{On: doc.Page, Note: doc.Sentence(planAnswerNote, r), Soft: true}, doc.Block{On: doc.Markdown, Note: basesLine})
	if remarks := r.remarks(); len(remarks) > 0 {
		s.Add(doc.Block{Warn: true, Heading: "Caveats", List: remarks})
	}
	s.Add(doc.Block{On: doc.Page, Heading: "The question", Facts: r.asked()})
	return s
}

func (r *report) frontierSection() doc.Section {
	s := doc.Section{ID: "frontier", Title: "Latency and CPU by setting", Short: "Frontier", NewSheet: true, Dense: true}
	if !slices.ContainsFunc(r.Subjects, func(one capacity.SubjectAnswer) bool { return len(one.Frontier) > 0 }) {
		return s
	}
	s.Add(doc.Block{On: doc.Page, Note: doc.Sentence(planFrontierNote, r.frontierAt())}, r.plots(r.frontierFigure()))
	for i := range r.Subjects {
		s.Add(doc.Block{On: doc.Page, Folded: true, Table: r.frontierTable(i)})
	}
	return s
}

func (r *report) curvesSection() doc.Section {
	s := doc.Section{ID: "curves", Title: "Largest cluster for each SLO", Short: "How far", NewSheet: true, Dense: true}
	var panels []growthPanel
	for _, q := range sloQuantities {
		if r.drawnWithSLOs(q.name) {
			panels = append(panels, q.panel())
		}
	}
	s.Add(doc.Block{On: doc.Page, Note: doc.Sentence(planCurvesNote, r)}, r.plots(r.growthFigures("capacity-", panels)...),
		doc.Block{On: doc.Page, Table: r.limitsTable()})
	return s
}

// growthFigures draws each panel as a separate plot.
func (r *report) growthFigures(prefix string, panels []growthPanel) []*figure.Figure {
	var out []*figure.Figure
	for _, g := range panels {
		f := &figure.Figure{Name: prefix + cmp.Or(g.slo, strings.ReplaceAll(g.text, " ", "-")), Title: doc.UpperFirst(g.text)}
		ends := g.add(r, f, figure.PanelHeight+10)
		if ends == nil {
			continue
		}
		figure.AlignEnds([]*figure.EndLabels{ends})
		bound := r.Question.SLOs.Bound(g.slo) > 0
		explainBases(f, g.measured != nil, bound)
		f.Caption = doc.Sentence(planGrowthCaption, growthCaption{Measured: g.measured != nil, SLO: bound, Other: otherSizes[r.Unit]})
		out = append(out, f)
	}
	return out
}

// panel is the quantity along the growth of the cluster, with the bound of its SLO.
func (q sloQuantity) panel() growthPanel {
	return growthPanel{text: q.text, unit: q.unit, of: estimateNamed(q.name), slo: q.name, measured: measuredOf[q.name]}
}

// measuredOf returns the measured points of an SLO's quantity in a calibration. Latency and CPU over time have none:
// they come from the simulated sync loop.
var measuredOf = map[string]func(*model.Subject) []model.Point{
	capacity.Memory: func(s *model.Subject) []model.Point {
		peaks := pointsOf(s, model.PeakRSS, "")
		for i, p := range peaks {
			largest := 0.0
			for _, tool := range s.Points {
				if tool.Quantity == model.ChildPeakRSS && tool.Services == p.Services && tool.Endpoints == p.Endpoints {
					largest = max(largest, tool.Value)
				}
			}
			peaks[i].Value += largest
		}
		return peaks
	},
	capacity.FirstPacketP99: func(s *model.Subject) []model.Point {
		if points := pointsOf(s, model.FirstPacketP99, ""); len(points) > 0 {
			return points
		}
		return pointsOf(s, model.FirstPacket, "") // of older calibrations, with a remark
	},
	capacity.Start: func(s *model.Subject) []model.Point { return pointsOf(s, model.Total, model.Full) },
}

func pointsOf(s *model.Subject, q model.Quantity, kind string) []model.Point { return s.Shown(q, kind) }

// drawnWithSLOs reports whether the section of the SLOs draws a quantity: those with an SLO, latency and CPU.
func (r *report) drawnWithSLOs(name string) bool {
	return r.Question.SLOs.Bound(name) > 0 || name == capacity.ProgrammingP99 || name == capacity.CPU
}

func (r *report) validationSection() doc.Section {
	s := doc.Section{ID: "validation", Title: "Predicted versus measured", Short: "Predicted, measured", Dense: true}
	if r.Model == nil {
		return s
	}
	v := r.Model.Validation
	if v == nil || len(v.Rows) == 0 {
		s.Add(doc.Block{On: doc.Page, Note: "The calibration held no cells out, so the accuracy of its predictions on this machine is unknown. " +
			"“synclab calibrate --hold-out” fits only the small cells and compares the large ones with their predictions. " +
			"This section shows that comparison for plans from such a calibration."})
		return s
	}
	var figures []*figure.Figure
	for _, g := range predictedGroups {
		figures = append(figures, g.figure(r))
	}
	s.Add(doc.Block{On: doc.Page, Note: doc.Sentence(planValidationNote, accuracyOf(v))}, r.plots(figures...),
		doc.Block{On: doc.Page, Table: r.validationTable(false)}, doc.Block{On: doc.Page, Folded: true, Table: r.validationTable(true)})
	return s
}

func (r *report) sensitivitySection() doc.Section {
	s := doc.Section{ID: "sensitivity", Title: "Sensitivity to inputs", Short: "Sensitivity", Dense: true}
	if strongest := r.strongestInputs(); len(strongest) > 0 {
		s.Add(doc.Block{On: doc.Page, Note: doc.Sentence(planSensitivityNote, strongest)})
	}
	s.Add(r.plots(r.sensitivityFigure()), doc.Block{On: doc.Page, Table: r.sensitivityTable()})
	return s
}

// strongestInput is the input that changes the largest cluster of some subjects most; empty: no tested input does.
type strongestInput struct {
	Input    string
	Subjects []string
}

func (r *report) strongestInputs() []strongestInput {
	var out []strongestInput
	for _, one := range r.Subjects {
		if len(one.Sensitivity) == 0 {
			continue
		}
		input := one.Sensitivity[0].Input
		if one.Sensitivity[0].AtLower == one.Sensitivity[0].AtHigher {
			input = ""
		}
		i := slices.IndexFunc(out, func(s strongestInput) bool { return s.Input == input })
		if i < 0 {
			i = len(out)
			out = append(out, strongestInput{Input: input})
		}
		out[i].Subjects = append(out[i].Subjects, one.Name)
	}
	return out
}

func (r *report) growthSection() doc.Section {
	s := doc.Section{ID: "growth", Title: "Rules, memory, packets and syncs as the cluster grows", Short: "Growth", NewSheet: true, Dense: true}
	panels := []growthPanel{{text: "rules", unit: "count", of: func(o capacity.Evaluation) (capacity.Estimate, bool) { return o.Rules, o.Rules.Median > 0 },
		measured: func(s *model.Subject) []model.Point { return pointsOf(s, model.Rules, "") }}}
	var above []string
	for _, name := range []string{capacity.Memory, capacity.FirstPacketP99, capacity.Start} {
		if r.drawnWithSLOs(name) {
			above = append(above, sloNamed(name).short)
			continue
		}
		panels = append(panels, sloNamed(name).panel())
	}
	if len(above) > 0 {
		s.Add(doc.Block{On: doc.Page, Note: doc.Sentence(planGrowthNote, above)})
	}
	figures := append(r.growthFigures("capacity-growth-", panels), r.syncsFigure(!r.drawnWithSLOs(capacity.Start)))
	s.Add(r.plots(figures...), doc.Block{On: doc.Page, Table: r.formulasTable()})
	return s
}

// syncsFigure draws durations of syncs. It omits full syncs if start, which is a full sync, has its own plot.
func (r *report) syncsFigure(onlyPartial bool) *figure.Figure {
	f := &figure.Figure{Name: "capacity-growth-syncs", Title: "Durations of syncs", Caption: doc.Sentence(planSyncsCaption, onlyPartial)}
	panels := []growthPanel{
		{text: "full sync", unit: "s", of: func(o capacity.Evaluation) (capacity.Estimate, bool) { return o.FullSync, o.FullSync.Median > 0 },
			measured: measuredOf[capacity.Start]},
		{text: "partial sync", unit: "s", of: func(o capacity.Evaluation) (capacity.Estimate, bool) { return o.PartialSync, o.PartialSync.Median > 0 },
			measured: func(s *model.Subject) []model.Point {
				return slices.DeleteFunc(pointsOf(s, model.Total, model.Partial), func(p model.Point) bool { return p.Changed > 1.5 })
			}}}
	if onlyPartial {
		panels, f.Title = panels[1:], "Durations of partial syncs"
	}
	var all []*figure.EndLabels
	for _, g := range panels {
		if ends := g.add(r, f, figure.PanelHeight-40*vg.Length(len(panels)-1)); ends != nil {
			all = append(all, ends)
		}
	}
	if len(all) == 0 {
		return nil
	}
	figure.AlignEnds(all)
	explainBases(f, true, false)
	for _, panel := range f.Panels[:len(f.Panels)-1] {
		panel.Plot.X.Label.Text = ""
	}
	return f
}

func (r *report) backendSection() doc.Section {
	s := doc.Section{ID: "backends", Title: "When a change of backend pays", Short: "Change of backend", Dense: true}
	var words []string
	for _, c := range r.Comparisons {
		words = append(words, c.Words)
	}
	s.Add(doc.Block{List: words}, doc.Block{On: doc.Page, Table: r.crossoverTable()})
	return s
}

func (r *report) assumptionsSection() doc.Section {
	s := doc.Section{ID: "limits", Title: "Assumptions and limits", Short: "Assumptions", NewSheet: true}
	const repeat = "How to repeat it"
	s.Add(doc.Block{On: doc.Page, List: assumptions},
		doc.Block{On: doc.Page, Heading: repeat, Code: cmp.Or(r.Command, "synclab report FOLDER   # the folder of this page"), Inert: r.Foreign})
	if r.Command != "" {
		s.Add(doc.Block{On: doc.Markdown, Heading: repeat, Note: doc.Sentence(planCommandNote, r)})
	}
	if r.Model != nil {
		s.Add(doc.Block{On: doc.Page, Heading: "Calibration of the cost model", Facts: r.calibration()})
	}
	return s
}

// calibration has the origin of the cost model, and the versions and the machine.
func (r *report) calibration() [][2]string {
	m := r.Model
	out := [][2]string{{"calibration", m.Run}, {"measured", m.Made.UTC().Format("2006-01-02 15:04 MST")},
		{"seed of the plan", strconv.FormatUint(r.Question.Seed, 10)}, {"seed of the fit", strconv.FormatUint(m.Seed, 10)},
		{"confidence of intervals", fmt.Sprintf("%.0f %%", 100*m.Confidence)}}
	head := records.RunHead{Versions: m.Versions, Machine: m.Machine, Feed: m.Feed}
	for _, v := range head.VersionList() {
		if !slices.Contains([]string{"seed", "repetitions", "measured", "subjects", "scenario", "status"}, v[0]) {
			out = append(out, v)
		}
	}
	return out
}

// rawSection has every number: as files within the page, and as tables.
func (r *report) rawSection() doc.Section {
	s := doc.Section{ID: "raw", Title: "Raw numbers", Dense: true}
	s.Add(doc.Block{On: doc.Page, Note: "Every number above, unrounded, times in seconds and memory in bytes. The files are also in the folder of this page.",
		HTML: downloadsHTML(r.csvFiles())},
		doc.Block{On: doc.Page, Folded: true, Table: r.curveTable()}, doc.Block{On: doc.Page, Folded: true, Table: r.frontierTable(-1)})
	return s
}

// assumptions are the limits of reports/model, sim/simulator and reports/capacity, for readers of the page.
var assumptions = []string{
	"The numbers are for one kind of machine: the kernel, the tools and the processor of the calibration. Another processor or kernel needs its " +
		"own calibration, which takes minutes.",
	"Services are as in the calibration: one port, plain cluster IPs, one IP family, equally many endpoints. Other types, more ports and a " +
		"second family cost more.",
	"Beyond the largest measured size, another cost model may apply: because of a small cache, a kernel limit or a time-out. Intervals grow with " +
		"the distance, but do not include such effects.",
	"Network programming latency starts when a change reaches the API server if the calibration measured the watch delay, else when the node's " +
		"informers receive the change. Earlier delays in the control plane are not included. Neither is the load of the API server, which sends every " +
		"change to every node.",
	"A change is visible at the end of its sync. Syncs that write in stages may show it sooner.",
	"Syncs do not fail, unless the calibration's did. No other program changes rules on the node.",
	"The proxier has the same CPUs as in the calibration. Other work on the node makes syncs longer.",
	"All nodes are equal, and none slows another down.",
	"Conntrack, bandwidth, and the resources of pods are not included. A first packet's cost is the cost of the rules, not a round trip.",
	"An interval includes the scatter of single cells, the predictions of alternative models that fit nearly as well, and the errors of " +
		"predictions beyond the fitted sizes. An SLO is met “for sure” if the upper end of the interval meets it.",
}
