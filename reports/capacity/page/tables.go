package page

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"synclab/reports/capacity"
	"synclab/reports/doc"
	"synclab/reports/records"
)

// estimateCell is a number with its mark, and below it its interval and its basis.
func estimateCell(e capacity.Estimate, unit string) doc.Cell {
	if !(e.Median > 0) && e.Basis == "" {
		return doc.None()
	}
	cell := doc.Value(e.Median, unit)
	cell.Text = marked(e.Basis, cell.Text)
	cell.Sub = subLines(intervalOf(e, unit), basisText(e))
	return cell
}

func subLines(lines ...string) string {
	return strings.Join(slices.DeleteFunc(lines, func(s string) bool { return s == "" }), "\n")
}

// sloCell is an SLO's quantity in an evaluation.
func sloCell(o capacity.Evaluation, name string) doc.Cell {
	e, ok := o.Quantities[name]
	if !ok {
		return doc.NoneFor("not measured")
	}
	return estimateCell(e, sloNamed(name).unit)
}

// metCell states whether an evaluation meets the SLOs.
func (r *report) metCell(o capacity.Evaluation) doc.Cell {
	given := r.givenSLOs()
	if len(given) == 0 {
		return doc.NoneFor("no SLO was given")
	}
	var violated, unsure []string
	for _, name := range given {
		switch metText(o, name) {
		case "no":
			violated = append(violated, sloNamed(name).short)
		case "perhaps":
			unsure = append(unsure, sloNamed(name).short)
		}
	}
	switch {
	case len(violated) > 0:
		return doc.Cell{Text: "no", Sub: doc.JoinWords(violated), Loud: true}
	case len(unsure) > 0:
		return doc.Cell{Text: "perhaps", Sub: doc.JoinWords(unsure), Title: "the SLO lies within the interval"}
	}
	return doc.Text("yes")
}

// targetCell is a cell of the evaluation at the target; empty without a target.
func targetCell(s capacity.SubjectAnswer, cell func(capacity.Evaluation) doc.Cell) doc.Cell {
	if s.Target == nil {
		return doc.Cell{}
	}
	return cell(*s.Target)
}

// limitCell is the largest size that meets an SLO.
func (r *report) limitCell(l capacity.Limit) doc.Cell {
	cell := doc.Cell{Text: r.largestText(l), Value: doc.Exact(l.Size.Median)}
	switch {
	case l.SLO == "":
		return doc.NoneFor("no quantity of an SLO was measured")
	case l.Never && !l.Smaller:
		cell.Loud, cell.Value = true, "0"
		cell.Sub = subLines("at no evaluated size")
		return cell
	case l.Never:
		cell.Loud = true
		cell.Sub = subLines("fewer than today", r.interval(l.Size), basisText(l.Size))
	case l.Unbounded:
		cell.Sub = subLines("at the largest evaluated size", basisText(l.Size))
	default:
		cell.Sub = subLines(r.interval(l.Size), basisText(l.Size))
	}
	cell.Text = marked(l.Size.Basis, cell.Text)
	return cell
}

// answerTable is the answer, subject by subject.
func (r *report) answerTable() *doc.Table {
	t := &doc.Table{Columns: []doc.Column{{Name: "Subject"}, {Name: "Largest cluster, " + string(r.Unit), Numeric: true}, {Name: "SLO violated first"},
		{Name: "SLOs met today"}, {Name: "SLOs met at target"}, {Name: "Recommended minSyncPeriod"}, {Name: "Latency p99 with it", Numeric: true},
		{Name: "CPUs with it", Numeric: true}, {Name: "Memory limit", Numeric: true}}}
	for i, s := range r.Subjects {
		name := r.subjectCell(i)
		if i == 0 {
			name.Sub, name.Markdown = "in use today", name.Text
		}
		t.Add(name, r.limitCell(s.Largest), violatedFirstCell(s), r.metCell(s.Today), targetCell(s, r.metCell), recommendedCell(s.Recommended),
			sloCell(s.Recommended.Outlook, capacity.ProgrammingP99), sloCell(s.Recommended.Outlook, capacity.CPU), r.memoryCell(s))
	}
	return t
}

// violatedFirstCell is the SLO that is violated first, with the reason.
func violatedFirstCell(s capacity.SubjectAnswer) doc.Cell {
	if s.Largest.Unbounded || s.Largest.SLO == "" {
		return doc.Cell{Text: "none", Faint: true}
	}
	name := sloNamed(s.Largest.SLO).short
	return doc.Cell{Text: name, Sub: s.Largest.Why, Markdown: name}
}

func recommendedCell(s capacity.Setting) doc.Cell {
	cell := periodCell(s.Policy)
	cell.Sub = policyText(s.Policy)
	switch {
	case len(s.Outlook.Violated) > 0:
		cell.Sub += "\nviolates an SLO"
	case !s.Met:
		cell.Sub += "\nmay violate an SLO"
	}
	return cell
}

func periodCell(p capacity.Policy) doc.Cell {
	return doc.Cell{Text: periodText(p.MinSyncPeriod), Value: doc.Exact(p.MinSyncPeriod.Seconds())}
}

func (r *report) memoryCell(s capacity.SubjectAnswer) doc.Cell {
	if s.MemoryLimit == 0 {
		return doc.None()
	}
	cell := doc.Value(float64(s.MemoryLimit), "B")
	at := s.Today
	if s.Target != nil {
		at = *s.Target
	}
	if e, ok := at.Quantities[capacity.Memory]; ok {
		cell.Text, cell.Sub = marked(e.Basis, cell.Text), basisText(e)
	}
	return cell
}

// limitsTable shows the largest size for each SLO with the policy in use.
func (r *report) limitsTable() *doc.Table {
	t := &doc.Table{Title: "Largest cluster for each SLO, with the policy in use",
		Note: "The SLO that is violated first comes first. The largest cluster of the answer uses the recommended setting, and may be larger or smaller.",
		Columns: []doc.Column{{Name: "Subject"}, {Name: "SLO"}, {Name: "Bound", Numeric: true}, {Name: "Met up to, " + string(r.Unit), Numeric: true},
			{Name: "The cluster there"}, {Name: "Today", Numeric: true}, {Name: "Target", Numeric: true}, {Name: "Reason"}}}
	for i, s := range r.Subjects {
		for _, l := range s.Limits {
			there := doc.None()
			if l.Cluster.Services > 0 && (!l.Never || l.Smaller) {
				there = doc.Text(clusterText(l.Cluster))
				if r.Unit == capacity.InServices { // the column before has them
					there.Text = strings.TrimPrefix(there.Text, doc.Plural(l.Cluster.Services, "Service")+" ")
				}
			}
			value := func(o capacity.Evaluation) doc.Cell { return sloCell(o, l.SLO) }
			t.Add(r.subjectCell(i), doc.Text(sloNamed(l.SLO).text), doc.Cell{Text: r.boundText(l.SLO), Value: doc.Exact(r.Question.SLOs.Bound(l.SLO))},
				r.limitCell(l), there, value(s.Today), targetCell(s, value), doc.Text(l.Why))
		}
	}
	return t
}

// frontierTable shows the evaluated settings of a subject, or of all (-1).
func (r *report) frontierTable(only int) *doc.Table {
	t := &doc.Table{Title: "Settings evaluated at " + r.frontierAt(), Columns: []doc.Column{{Name: "Subject"}, {Name: "minSyncPeriod", Numeric: true},
		{Name: "Policy"}, {Name: "Latency p50", Numeric: true}, {Name: "p90", Numeric: true}, {Name: "p99", Numeric: true},
		{Name: "Slowest node's p99", Numeric: true}, {Name: "CPUs", Numeric: true}, {Name: "Syncs a second", Numeric: true},
		{Name: "Busy", Numeric: true, Title: "share of the time spent in syncs"}, {Name: "SLOs met"}}}
	for i, s := range r.Subjects {
		if only >= 0 && i != only {
			continue
		}
		if only >= 0 {
			t.Title = s.Name + ": " + doc.Plural(len(s.Frontier), "setting") + " at " + r.frontierAt()
		}
		for _, one := range s.Frontier {
			met := r.metCell(one.Outlook)
			for _, remark := range []struct {
				is   bool
				text string
			}{{one.Policy == s.Recommended.Policy, "recommended"}, {one.InUse, "in use"}, {one.Discouraged != "", "not recommended: " + one.Discouraged}} {
				if remark.is {
					met.Sub = subLines(met.Sub, remark.text)
				}
			}
			o := one.Outlook
			t.Add(r.subjectCell(i), periodCell(one.Policy), doc.Text(policyText(one.Policy)), doc.Value(o.P50.Seconds(), "s"), doc.Value(o.P90.Seconds(), "s"),
				sloCell(o, capacity.ProgrammingP99), doc.Value(o.SlowestP99.Seconds(), "s"), sloCell(o, capacity.CPU), doc.Value(o.SyncsPerSecond, ""),
				doc.Value(o.BusyShare, "ratio"), met)
		}
	}
	return t
}

// curveTable has every evaluation of the curves.
func (r *report) curveTable() *doc.Table {
	t := &doc.Table{Title: "Curves: every evaluated size", Columns: []doc.Column{{Name: "Subject"}, {Name: "Services", Numeric: true},
		{Name: "Endpoints", Numeric: true, Title: "per Service"}, {Name: "Nodes", Numeric: true}, {Name: "Endpoint changes/s", Numeric: true},
		{Name: "Latency p99", Numeric: true}, {Name: "CPUs", Numeric: true}, {Name: "Memory", Numeric: true}, {Name: "First packet", Numeric: true},
		{Name: "Start", Numeric: true}, {Name: "Rules", Numeric: true}, {Name: "Partial sync", Numeric: true}, {Name: "SLOs met"}}}
	for i, s := range r.Subjects {
		for _, o := range s.Curve {
			t.Add(r.subjectCell(i), doc.Int(o.Cluster.Services), doc.Cell{Text: records.EndpointsText(o.Cluster.Endpoints), Value: doc.Exact(o.Cluster.Endpoints)},
				doc.Int(o.Cluster.Nodes), doc.Value(o.Cluster.Churn.Endpoints, ""), sloCell(o, capacity.ProgrammingP99), sloCell(o, capacity.CPU),
				sloCell(o, capacity.Memory), sloCell(o, capacity.FirstPacketP99), sloCell(o, capacity.Start), estimateCell(rounded(o.Rules), "count"),
				estimateCell(o.PartialSync, "s"), r.metCell(o))
		}
	}
	return t
}

// rounded removes the fractions of a count.
func rounded(e capacity.Estimate) capacity.Estimate {
	e.Median, e.Low, e.High = math.Round(e.Median), math.Round(e.Low), math.Round(e.High)
	return e
}

func (r *report) sensitivityTable() *doc.Table {
	var largest []largestSize
	for _, s := range r.Subjects {
		largest = append(largest, largestSize{Size: r.largestText(s.Largest), Basis: basisText(s.Largest.Size), Subject: s.Name})
	}
	size := doc.UpperFirst(string(r.Unit)) + " reached"
	t := &doc.Table{Note: doc.Sentence(planSensitivityTableNote, largest), Columns: []doc.Column{{Name: "Subject"}, {Name: "Input"}, {Name: "Input ×", Numeric: true},
		{Name: size, Numeric: true}, {Name: "Input ×", Numeric: true}, {Name: size, Numeric: true}, {Name: "Remark"}}}
	for i, s := range r.Subjects {
		for _, one := range s.Sensitivity {
			note := ""
			switch {
			case one.CappedLower && one.CappedHigher:
				note = "both searches ended there, so the values are lower bounds"
			case one.CappedLower:
				note = "× " + factorText(one.Lower) + ": the search ended there, so the value is a lower bound"
			case one.CappedHigher:
				note = "× " + factorText(one.Higher) + ": the search ended there, so the value is a lower bound"
			}
			t.Add(r.subjectCell(i), doc.Text(inputText(one.Input)), doc.Cell{Text: factorText(one.Lower), Value: doc.Exact(one.Lower)}, r.sizeCell(one.AtLower),
				doc.Cell{Text: factorText(one.Higher), Value: doc.Exact(one.Higher)}, r.sizeCell(one.AtHigher), doc.Text(note))
		}
	}
	return t
}

// sizeCell is a size, or 0.
func (r *report) sizeCell(size float64) doc.Cell {
	return doc.Cell{Text: r.count(size), Value: doc.Exact(size), Title: doc.Exact(size) + " " + string(r.Unit)}
}

func (r *report) crossoverTable() *doc.Table {
	use := r.Subjects[0].Name
	t := &doc.Table{Title: "Each versus " + use + ", which is in use", Note: doc.Sentence(planCrossoverNote, use), Columns: []doc.Column{{Name: "Subject"},
		{Name: "Quantity"}, {Name: "Better"}, {Name: "Beyond doubt"}, {Name: "× today", Numeric: true}, {Name: "× at target", Numeric: true},
		{Name: "Basis of the crossing"}}}
	times := func(v float64) doc.Cell {
		if !(v > 0) {
			return doc.None()
		}
		return doc.Cell{Text: fmt.Sprintf("%.3g", v), Value: doc.Exact(v)}
	}
	for _, c := range r.crossings() {
		doubt, target := doc.Cell{Text: "nowhere", Faint: true}, doc.Cell{}
		switch {
		case c.clearAlways:
			doubt = doc.Text("at every evaluated size")
		case c.clear > 0:
			doubt = doc.Cell{Text: "from " + r.count(c.clear) + " " + string(r.Unit) + " on", Value: doc.Exact(c.clear)}
		}
		if r.Target != nil {
			target = times(c.target)
		}
		t.Add(r.subjectCell(c.other), doc.Text(c.quantity.short), doc.Text(r.crossingText(c)), doubt, times(c.today), target,
			doc.Text(marked(c.Basis, string(c.Basis))))
	}
	return t
}
