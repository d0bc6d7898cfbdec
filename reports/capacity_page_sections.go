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

// The sections of the capacity page, in its order. Each is nil where there is nothing to show.

func (r *capacityReport) frontierSection() *capacitySection {
	s := &capacitySection{ID: "frontier", Short: "Frontier", Title: "What a setting costs, and what it gives", Break: true,
		Notes: []string{"A short minSyncPeriod makes changes visible sooner and costs CPU; a long one lets changes gather and saves it. " +
			"Each curve is what one subject offers at " + r.frontierAt() + "; settings off its lower left edge are worse in both."}}
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

// growthFigures draws panels as figures of their own.
func (r *capacityReport) growthFigures(prefix string, panels []growthPanel) []*figure {
	var out []*figure
	for _, g := range panels {
		name := cmp.Or(g.promise, strings.ReplaceAll(g.text, " ", "-"))
		f := &figure{name: prefix + name, title: sentenceCase(g.text)}
		promised := r.Question.Promise.Bound(g.promise) > 0
		ends := g.add(r, f, panelHeight+10)
		if ends == nil {
			continue
		}
		alignEnds([]*endLabels{ends})
		f.explainBases(g.measured != nil, promised)
		f.caption = "The band is the interval."
		if g.measured != nil {
			f.caption += " Filled marks are measured cells" + map[capacity.Unit]string{
				capacity.InServices:  "; small pale ones had other numbers of endpoints per Service than the curve has there",
				capacity.InEndpoints: "; small pale ones had other numbers of Services than the curve has there"}[r.Unit] + "."
		} else {
			f.caption += " No mark: this comes from the sync loop in virtual time, which draws its syncs from the cost model."
		}
		if promised {
			f.caption += " The dotted line is the promise, with how far each subject holds it."
		}
		out = append(out, f)
	}
	return out
}

// promisePanels are the quantities of promises.
func promisePanels() map[string]growthPanel {
	out := map[string]growthPanel{}
	for _, p := range promiseTexts {
		out[p.name] = growthPanel{text: p.text, unit: p.unit, of: estimateNamed(p.name), promise: p.name, measured: measuredOf[p.name]}
	}
	return out
}

// measuredOf are the points of a calibration that a promise's quantity was measured in. Latency and CPU over time have
// none: they come of the loop.
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
		return pointsOf(s, model.FirstPacket, "") // of older calibrations: a remark says so
	},
	capacity.Start: func(s *model.Subject) []model.Point { return pointsOf(s, model.Total, model.Full) },
}

func pointsOf(s *model.Subject, q model.Quantity, kind string) []model.Point { return s.Shown(q, kind) }

// drawnWithPromises are the quantities of the section of promises: what is promised, and what the loop does in any case.
func (r *capacityReport) drawnWithPromises(name string) bool {
	return r.Question.Promise.Bound(name) > 0 || name == capacity.ProgrammingP99 || name == capacity.CPU
}

func (r *capacityReport) curvesSection() *capacitySection {
	s := &capacitySection{ID: "curves", Short: "How far", Title: "How far each promise holds", Break: true,
		Notes: []string{fmt.Sprintf("Everything against %s, along the growth that was asked for: what else grows has grown with it. All with the policy in use today.", r.Unit)}}
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
	s := &capacitySection{ID: "validation", Short: "Predicted, measured", Title: "Predicted against measured"}
	if r.Model == nil {
		return nil
	}
	v := r.Model.Validation
	if v == nil || len(v.Rows) == 0 {
		s.Notes = []string{"The calibration held no cells out, so nothing here says how well its predictions come true on this machine. " +
			"A calibration with “synclab calibrate --hold-out” fits the small cells only and holds the large ones against what was predicted for them; plan from that one, and this section shows it."}
		return s
	}
	failed, coverage, points := v.Overall("")
	s.Notes = []string{fmt.Sprintf("To try the method, the laws were fitted to the small cells only and had to predict the large ones. Whole syncs: median absolute error %.1f %%, and %.0f %% of %d points within their intervals of %.0f %%. Aimed at: an error of 10 %% or less, and 85 %% or more within. The numbers of this page come from a fit to all cells.",
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
	s := &capacitySection{ID: "sensitivity", Short: "Sensitivity", Title: "Which input moves the answer most"}
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
			parts = append(parts, "nothing that was tried moves it for "+joinWords(byInput[input]))
			continue
		}
		parts = append(parts, inputText(input)+" for "+joinWords(byInput[input]))
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{"What moves the largest cluster most: " + strings.Join(parts, "; ") + "."}
}

func (r *capacityReport) growthSection() *capacitySection {
	s := &capacitySection{ID: "growth", Short: "Growth", Title: "Rules, memory, packets and syncs as the cluster grows", Break: true}
	panels := []growthPanel{{text: "rules", unit: "count", of: func(o capacity.Outlook) (capacity.Estimate, bool) { return o.Rules, o.Rules.Median > 0 },
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
		s.Notes = append(s.Notes, sentenceCase(joinWords(above))+": see the curves of the promises above.")
	}
	s.Tables = []pageTable{r.lawsTable()}
	return s
}

// syncsFigure draws what syncs take; full ones are left out where start, which is one, has a figure of its own.
func (r *capacityReport) syncsFigure(onlyPartial bool) *figure {
	f := &figure{name: "capacity-growth-syncs", title: "How long a sync takes",
		caption: "A full sync into empty tables, and a partial sync of one changed Service. The band is the interval; filled marks are measured cells, small pale ones had other numbers of endpoints per Service."}
	panels := []growthPanel{
		{text: "full sync", unit: "s", of: func(o capacity.Outlook) (capacity.Estimate, bool) { return o.FullSync, o.FullSync.Median > 0 }, measured: measuredOf[capacity.Start]},
		{text: "partial sync", unit: "s", of: func(o capacity.Outlook) (capacity.Estimate, bool) { return o.PartialSync, o.PartialSync.Median > 0 },
			measured: func(s *model.Subject) []model.Point {
				return slices.DeleteFunc(pointsOf(s, model.Total, model.Partial), func(p model.Point) bool { return p.Changed > 1.5 })
			}}}
	if onlyPartial {
		panels = panels[1:]
		f.title, f.caption = "How long a partial sync takes", strings.Replace(f.caption, "A full sync into empty tables, and a", "A", 1)
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

// assumptions are what reports/model, sim/twin and reports/capacity do not model, for readers of the page.
var assumptions = []string{
	"The numbers are of one kind of machine: the kernel, the tools and the processor of the calibration. Another processor or kernel needs its own calibration, which takes minutes.",
	"Services are those of the calibration: of one port and plain cluster IPs, one IP family. Other types, more ports and a second family cost more.",
	"Beyond the largest measured size a law may end that no measured size can show: a cache that is too small, a limit of the kernel, a time-out. Intervals grow with the distance, but cannot know of it.",
	"Network programming latency is counted from when a change reaches the API server, as far as the calibration measured the way from there, else from when the node's informers hear of it. What the control plane takes before comes on top, and so does the load of the API server, which sends every change to every node.",
	"A change is visible at the end of its sync. Syncs that write in stages may show it sooner.",
	"Syncs do not fail, unless the calibration's did; rules that others change on the node are not looked for.",
	"The proxier has the CPUs it had in the calibration. Other work on the node makes syncs longer.",
	"Nodes are alike, and none slows another down.",
	"Conntrack, bandwidth, and what pods themselves need are not part of it. A first packet's cost is what the rules take of it, not a round trip.",
	"An interval holds what single cells scatter, what other laws that fit nearly as well would say, and how far predictions went astray beyond the sizes they were fitted to. Whether a promise holds “for sure” is judged at its upper end.",
}

// sentenceCase makes the first letter large, if that is no name.
func sentenceCase(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
