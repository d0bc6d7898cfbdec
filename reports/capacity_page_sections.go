package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot/vg"

	"synclab/reports/capacity"
	"synclab/reports/model"
)

// The sections of the capacity page, in its order. Each is nil without content.

func (r *capacityReport) frontierSection() *capacitySection {
	s := &capacitySection{ID: "frontier", Short: "Frontier", Title: "Latency and CPU by setting", Break: true,
		Notes: []string{"A short minSyncPeriod makes changes visible sooner and costs CPU. A long one combines changes and saves CPU. " +
			"Each curve shows the settings of one subject at " + r.frontierAt() + ". For a setting off the lower left edge, another setting is better in both."}}
	if f := r.frontierFigure(); f != nil {
		s.drawn = append(s.drawn, f)
	}
	for i := range r.Subjects {
		if t := r.frontierTable(i); len(t.Rows) > 0 {
			s.Folded = append(s.Folded, t)
		}
	}
	if len(s.drawn) == 0 && len(s.Folded) == 0 {
		return nil
	}
	return s
}

// growthFigures draws each panel as a separate plot.
func (r *capacityReport) growthFigures(prefix string, panels []growthPanel) []*figure {
	var out []*figure
	for _, g := range panels {
		name := cmp.Or(g.promise, strings.ReplaceAll(g.text, " ", "-"))
		f := &figure{name: prefix + name, title: sentenceCase(g.text)}
		promised := r.Question.SLOs.Bound(g.promise) > 0
		ends := g.add(r, f, panelHeight+10)
		if ends == nil {
			continue
		}
		alignEnds([]*endLabels{ends})
		f.explainBases(g.measured != nil, promised)
		f.caption = "The band is the interval."
		if g.measured != nil {
			f.caption += " Filled marks are measured cells" + map[capacity.Unit]string{
				capacity.InServices:  "; small pale ones have other numbers of endpoints per Service than the curve",
				capacity.InEndpoints: "; small pale ones have other numbers of Services than the curve"}[r.Unit] + "."
		} else {
			f.caption += " There are no marks: the values come from the sync loop in virtual time, with sync durations from the cost model."
		}
		if promised {
			f.caption += " The dotted line is the SLO, with the largest size at which each subject meets it."
		}
		out = append(out, f)
	}
	return out
}

// promisePanels are the panels of the SLOs' quantities.
func promisePanels() map[string]growthPanel {
	out := map[string]growthPanel{}
	for _, p := range promiseTexts {
		out[p.name] = growthPanel{text: p.text, unit: p.unit, of: estimateNamed(p.name), promise: p.name, measured: measuredOf[p.name]}
	}
	return out
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

// drawnWithPromises reports whether the SLO section draws a quantity: those with an SLO, latency and CPU.
func (r *capacityReport) drawnWithPromises(name string) bool {
	return r.Question.SLOs.Bound(name) > 0 || name == capacity.ProgrammingP99 || name == capacity.CPU
}

func (r *capacityReport) curvesSection() *capacitySection {
	s := &capacitySection{ID: "curves", Short: "How far", Title: "Largest cluster for each SLO", Break: true,
		Notes: []string{fmt.Sprintf("All quantities versus %s, along the given growth of the whole cluster, with the policy in use today.", r.Unit)}}
	panels := promisePanels()
	var shown []growthPanel
	for _, p := range promiseTexts {
		if r.drawnWithPromises(p.name) {
			shown = append(shown, panels[p.name])
		}
	}
	s.drawn = r.growthFigures("capacity-", shown)
	if t := r.limitsTable(); len(t.Rows) > 0 {
		s.Tables = append(s.Tables, t)
	}
	return s
}

func (r *capacityReport) validationSection() *capacitySection {
	s := &capacitySection{ID: "validation", Short: "Predicted, measured", Title: "Predicted versus measured"}
	if r.Model == nil {
		return nil
	}
	v := r.Model.Validation
	if v == nil || len(v.Rows) == 0 {
		s.Notes = []string{"The calibration held no cells out, so the accuracy of its predictions on this machine is unknown. " +
			"“synclab calibrate --hold-out” fits only the small cells and compares the large ones with their predictions. This section shows that comparison for plans from such a calibration."}
		return s
	}
	failed, coverage, points := v.Overall("")
	s.Notes = []string{fmt.Sprintf("As a test, the cost model was fitted to the small cells only and predicted the large ones. Whole syncs: median absolute error %.1f %%, and %.0f %% of %d points within their intervals of %.0f %%. Targets: an error of at most 10 %%, and at least 85 %% within. The numbers of this page use a fit to all cells.",
		100*failed, 100*coverage, points, 100*v.Confidence)}
	for _, g := range predictedGroups {
		if f := g.figure(r); f != nil {
			s.drawn = append(s.drawn, f)
		}
	}
	s.Tables = []pageTable{r.validationTable(false)}
	if t := r.validationTable(true); len(t.Rows) > 0 {
		s.Folded = []pageTable{t}
	}
	return s
}

func (r *capacityReport) sensitivitySection() *capacitySection {
	s := &capacitySection{ID: "sensitivity", Short: "Sensitivity", Title: "Sensitivity to inputs"}
	f, t := r.sensitivityFigure(), r.sensitivityTable()
	if f == nil && len(t.Rows) == 0 {
		return nil
	}
	if f != nil {
		s.drawn = []*figure{f}
	}
	s.Notes = r.sensitivitySentences()
	s.Tables = []pageTable{t}
	return s
}

// sensitivitySentences name the strongest input of each subject.
func (r *capacityReport) sensitivitySentences() []string {
	byInput := map[string][]string{}
	var order []string
	for _, one := range r.Subjects {
		if len(one.Sensitivity) == 0 {
			continue
		}
		input := one.Sensitivity[0].Input
		if one.Sensitivity[0].AtLower == one.Sensitivity[0].AtHigher {
			input = ""
		}
		if byInput[input] == nil {
			order = append(order, input)
		}
		byInput[input] = append(byInput[input], one.Name)
	}
	var parts []string
	for _, input := range order {
		if input == "" {
			parts = append(parts, "none of the tested inputs for "+joinWords(byInput[input]))
			continue
		}
		parts = append(parts, inputText(input)+" for "+joinWords(byInput[input]))
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{"Strongest influence on the largest cluster: " + strings.Join(parts, "; ") + "."}
}

func (r *capacityReport) growthSection() *capacitySection {
	s := &capacitySection{ID: "growth", Short: "Growth", Title: "Rules, memory, packets and syncs as the cluster grows", Break: true}
	panels := []growthPanel{{text: "rules", unit: "count", of: func(o capacity.Evaluation) (capacity.Estimate, bool) { return o.Rules, o.Rules.Median > 0 },
		measured: func(s *model.Subject) []model.Point { return pointsOf(s, model.Rules, "") }}}
	var above []string
	for _, name := range []string{capacity.Memory, capacity.FirstPacketP99, capacity.Start} {
		if r.drawnWithPromises(name) {
			above = append(above, promiseNamed(name).short)
			continue
		}
		panels = append(panels, promisePanels()[name])
	}
	s.drawn = r.growthFigures("capacity-growth-", panels)
	if f := r.syncsFigure(!r.drawnWithPromises(capacity.Start)); f != nil {
		s.drawn = append(s.drawn, f)
	}
	if len(above) > 0 {
		s.Notes = append(s.Notes, sentenceCase(joinWords(above))+": see the curves of the SLOs above.")
	}
	s.Tables = []pageTable{r.lawsTable()}
	return s
}

// syncsFigure draws durations of syncs. It omits full syncs if start, which is a full sync, has its own plot.
func (r *capacityReport) syncsFigure(onlyPartial bool) *figure {
	f := &figure{name: "capacity-growth-syncs", title: "Durations of syncs",
		caption: "A full sync into empty tables, and a partial sync of one changed Service. The band is the interval. Filled marks are measured cells; small pale ones have other numbers of endpoints per Service."}
	panels := []growthPanel{
		{text: "full sync", unit: "s", of: func(o capacity.Evaluation) (capacity.Estimate, bool) { return o.FullSync, o.FullSync.Median > 0 }, measured: measuredOf[capacity.Start]},
		{text: "partial sync", unit: "s", of: func(o capacity.Evaluation) (capacity.Estimate, bool) { return o.PartialSync, o.PartialSync.Median > 0 },
			measured: func(s *model.Subject) []model.Point {
				return slices.DeleteFunc(pointsOf(s, model.Total, model.Partial), func(p model.Point) bool { return p.Changed > 1.5 })
			}}}
	if onlyPartial {
		panels = panels[1:]
		f.title, f.caption = "Durations of partial syncs", strings.Replace(f.caption, "A full sync into empty tables, and a", "A", 1)
	}
	var all []*endLabels
	for _, g := range panels {
		if ends := g.add(r, f, panelHeight-40*vg.Length(len(panels)-1)); ends != nil {
			all = append(all, ends)
		}
	}
	if len(all) == 0 {
		return nil
	}
	alignEnds(all)
	f.explainBases(true, false)
	for _, panel := range f.panels[:len(f.panels)-1] {
		panel.plot.X.Label.Text = ""
	}
	return f
}

func (r *capacityReport) backendSection() *capacitySection {
	if len(r.Comparisons) == 0 {
		return nil
	}
	s := &capacitySection{ID: "backends", Short: "Change of backend", Title: "When a change of backend pays", Notes: r.backendSentences()}
	if t := r.crossoverTable(); len(t.Rows) > 0 {
		s.Tables = []pageTable{t}
	}
	return s
}

func (r *capacityReport) assumptionsSection() *capacitySection {
	s := &capacitySection{ID: "limits", Short: "Assumptions", Title: "Assumptions and limits", Break: true, List: assumptions, Command: r.Command}
	if s.Command == "" {
		s.Command = "synclab report FOLDER   # the folder of this page"
	}
	if r.Model == nil {
		return s
	}
	m := r.Model
	head := RunHead{Versions: m.Versions, Machine: m.Machine, Feed: m.Feed}
	s.Facts = [][2]string{{"calibration", m.Run}, {"measured", m.Made.UTC().Format("2006-01-02 15:04 MST")}, {"seed of the plan", strconv.FormatUint(r.Question.Seed, 10)},
		{"seed of the fit", strconv.FormatUint(m.Seed, 10)}, {"confidence of intervals", fmt.Sprintf("%.0f %%", 100*m.Confidence)}}
	for _, v := range head.VersionList() {
		if !slices.Contains([]string{"seed", "repetitions", "measured", "subjects", "scenario", "status"}, v[0]) {
			s.Facts = append(s.Facts, v)
		}
	}
	return s
}

// assumptions are the limits of reports/model, sim/twin and reports/capacity, for readers of the page.
var assumptions = []string{
	"The numbers are for one kind of machine: the kernel, the tools and the processor of the calibration. Another processor or kernel needs its own calibration, which takes minutes.",
	"Services are as in the calibration: one port, plain cluster IPs, one IP family. Other types, more ports and a second family cost more.",
	"Beyond the largest measured size, another cost model may apply: because of a small cache, a kernel limit or a time-out. Intervals grow with the distance, but do not include such effects.",
	"Network programming latency starts when a change reaches the API server if the calibration measured the watch delay, else when the node's informers receive the change. Earlier delays in the control plane are not included. Neither is the load of the API server, which sends every change to every node.",
	"A change is visible at the end of its sync. Syncs that write in stages may show it sooner.",
	"Syncs do not fail, unless the calibration's did. No other program changes rules on the node.",
	"The proxier has the same CPUs as in the calibration. Other work on the node makes syncs longer.",
	"All nodes are equal, and none slows another down.",
	"Conntrack, bandwidth, and the resources of pods are not included. A first packet's cost is the cost of the rules, not a round trip.",
	"An interval includes the scatter of single cells, the predictions of alternative models that fit nearly as well, and the errors of predictions beyond the fitted sizes. An SLO is met “for sure” if the upper end of the interval meets it.",
}

// sentenceCase makes the first letter upper case.
func sentenceCase(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
