package reports

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"synclab/reports/capacity"
)

// estimateCell is a number with its mark, and below it its interval and its basis.
func estimateCell(e capacity.Estimate, unit string) pageCell {
	if !(e.Median > 0) && e.Basis == "" {
		return pageCell{Text: "–", Faint: true}
	}
	cell := valueCell(e.Median, unit)
	cell.Text = strings.TrimSpace(basisMark(e.Basis) + "\u00a0" + cell.Text)
	cell.Sub = subLines(intervalOf(e, unit), basisText(e))
	return cell
}

func subLines(lines ...string) string {
	return strings.Join(slices.DeleteFunc(lines, func(s string) bool { return s == "" }), "\n")
}

// promisedCell is an SLO's quantity in an outlook.
func promisedCell(o capacity.Evaluation, name string) pageCell {
	e, ok := o.Quantities[name]
	if !ok {
		return pageCell{Text: "–", Faint: true, Title: "not measured"}
	}
	return estimateCell(e, promiseNamed(name).unit)
}

// holdsCell states whether an outlook meets the SLOs.
func (r *capacityReport) holdsCell(o capacity.Evaluation) pageCell {
	promised := r.promised()
	if len(promised) == 0 {
		return pageCell{Text: "–", Faint: true, Title: "no SLO was given"}
	}
	var breaks, unsure []string
	for _, name := range promised {
		switch {
		case slices.Contains(o.Violated, name):
			breaks = append(breaks, name)
		case !slices.Contains(o.Met, name):
			unsure = append(unsure, name)
		}
	}
	switch {
	case len(breaks) > 0:
		return pageCell{Text: "no", Sub: shortPromises(breaks), Loud: true}
	case len(unsure) > 0:
		return pageCell{Text: "perhaps", Sub: shortPromises(unsure), Title: "the SLO lies within the interval"}
	}
	return pageCell{Text: "yes"}
}

// limitCell is the largest size that meets an SLO.
func (r *capacityReport) limitCell(l capacity.Limit) pageCell {
	cell := pageCell{Text: r.farText(l), Value: exact(l.Reach.Median)}
	switch {
	case l.SLO == "":
		return pageCell{Text: "–", Faint: true, Title: "no quantity of an SLO was measured"}
	case l.Never && !l.Smaller:
		cell.Loud, cell.Value = true, "0"
		cell.Sub = subLines("at no evaluated size", basisText(l.Reach))
		return cell
	case l.Never:
		cell.Loud = true
		cell.Sub = subLines("fewer than today", r.interval(l.Reach), basisText(l.Reach))
	case l.Unbounded:
		cell.Sub = subLines("at the largest evaluated size", basisText(l.Reach))
	default:
		cell.Sub = subLines(r.interval(l.Reach), basisText(l.Reach))
	}
	cell.Text = strings.TrimSpace(basisMark(l.Reach.Basis) + "\u00a0" + cell.Text)
	return cell
}

// answerTable is the answer, subject by subject.
func (r *capacityReport) answerTable() pageTable {
	t := pageTable{Note: "Largest cluster: " + string(r.Unit) + " up to which every SLO is met with the recommended setting, with the interval. The rest of the cluster grows with it. " +
		"“Perhaps”: the SLO lies within the interval. Today and target use the policy in use. The memory limit is the upper bound plus a margin.",
		Columns: []pageColumn{{Name: "Subject"}, {Name: "Largest cluster, " + string(r.Unit), Numeric: true}, {Name: "SLO violated first"}, {Name: "SLOs met today"}, {Name: "SLOs met at target"},
			{Name: "Recommended minSyncPeriod"}, {Name: "Latency p99 with it", Numeric: true}, {Name: "CPUs with it", Numeric: true}, {Name: "Memory limit", Numeric: true}}}
	for i, s := range r.Subjects {
		subject := r.subjectCell(i)
		if i == 0 {
			subject.Sub = "in use today"
		}
		target := pageCell{}
		if s.Target != nil {
			target = r.holdsCell(*s.Target)
		}
		t.Rows = append(t.Rows, []pageCell{subject, r.limitCell(s.Largest), firstBreak(s), r.holdsCell(s.Today), target, recommendedCell(s.Recommended),
			promisedCell(s.Recommended.Outlook, capacity.ProgrammingP99), promisedCell(s.Recommended.Outlook, capacity.CPU), r.memoryCell(s)})
	}
	return t.dropEmpty()
}

// firstBreak is the SLO that is violated first, with the reason.
func firstBreak(s capacity.SubjectAnswer) pageCell {
	if s.Largest.Unbounded || s.Largest.SLO == "" {
		return pageCell{Text: "none", Faint: true}
	}
	return pageCell{Text: promiseNamed(s.Largest.SLO).short, Sub: s.Largest.Why}
}

func recommendedCell(s capacity.Setting) pageCell {
	cell := pageCell{Text: periodText(s.Policy.MinSyncPeriod), Value: exact(s.Policy.MinSyncPeriod.Seconds()), Sub: policyText(s.Policy)}
	switch {
	case len(s.Outlook.Violated) > 0:
		cell.Sub += "\nviolates an SLO"
	case !s.Met:
		cell.Sub += "\nmay violate an SLO"
	}
	return cell
}

func (r *capacityReport) memoryCell(s capacity.SubjectAnswer) pageCell {
	if s.MemoryLimit == 0 {
		return pageCell{Text: "–", Faint: true}
	}
	cell := valueCell(float64(s.MemoryLimit), "B")
	at := s.Today
	if s.Target != nil {
		at = *s.Target
	}
	if e, ok := at.Quantities[capacity.Memory]; ok {
		cell.Sub = basisText(e)
		cell.Text = strings.TrimSpace(basisMark(e.Basis) + "\u00a0" + cell.Text)
	}
	return cell
}

// limitsTable shows the largest size for each SLO with the policy in use.
func (r *capacityReport) limitsTable() pageTable {
	t := pageTable{Title: "Largest cluster for each SLO, with the policy in use",
		Note: "The SLO that is violated first comes first. The largest cluster of the answer uses the recommended setting, and may be larger or smaller.",
		Columns: []pageColumn{{Name: "Subject"}, {Name: "SLO"}, {Name: "Bound", Numeric: true}, {Name: "Met up to, " + string(r.Unit), Numeric: true}, {Name: "The cluster there"},
			{Name: "Today", Numeric: true}, {Name: "Target", Numeric: true}, {Name: "Reason"}}}
	for i, s := range r.Subjects {
		for _, l := range s.Limits {
			target, there := pageCell{}, pageCell{Text: "–", Faint: true}
			if s.Target != nil {
				target = promisedCell(*s.Target, l.SLO)
			}
			if l.Cluster.Services > 0 && (!l.Never || l.Smaller) {
				there = pageCell{Text: clusterText(l.Cluster)}
				if r.Unit == capacity.InServices { // the column before has them
					there.Text = strings.TrimPrefix(there.Text, plural(l.Cluster.Services, "Service")+" ")
				}
			}
			t.Rows = append(t.Rows, []pageCell{r.subjectCell(i), {Text: promiseNamed(l.SLO).text}, {Text: r.boundText(l.SLO), Value: exact(r.Question.SLOs.Bound(l.SLO))},
				r.limitCell(l), there, promisedCell(s.Today, l.SLO), target, {Text: l.Why}})
		}
	}
	return t.dropEmpty()
}

// frontierTable shows the evaluated settings of a subject, or of all (-1).
func (r *capacityReport) frontierTable(only int) pageTable {
	t := pageTable{Title: "Settings evaluated at " + r.frontierAt(), Columns: []pageColumn{{Name: "Subject"}, {Name: "minSyncPeriod", Numeric: true}, {Name: "Policy"},
		{Name: "Latency p50", Numeric: true}, {Name: "p90", Numeric: true}, {Name: "p99", Numeric: true}, {Name: "Slowest node's p99", Numeric: true}, {Name: "CPUs", Numeric: true},
		{Name: "Syncs a second", Numeric: true}, {Name: "Busy", Numeric: true, Title: "share of the time spent in syncs"}, {Name: "SLOs met"}}}
	for i, s := range r.Subjects {
		if only >= 0 && i != only {
			continue
		}
		if only >= 0 {
			t.Title = s.Name + ": " + plural(len(s.Frontier), "setting") + " at " + r.frontierAt()
		}
		for _, one := range s.Frontier {
			holds := r.holdsCell(one.Outlook)
			for _, remark := range []struct {
				is   bool
				text string
			}{{one.Policy == s.Recommended.Policy, "recommended"}, {one.InUse, "in use"}, {one.Discouraged != "", "not recommended: " + one.Discouraged}} {
				if remark.is {
					holds.Sub = subLines(holds.Sub, remark.text)
				}
			}
			o := one.Outlook
			t.Rows = append(t.Rows, []pageCell{r.subjectCell(i), {Text: periodText(one.Policy.MinSyncPeriod), Value: exact(one.Policy.MinSyncPeriod.Seconds())}, {Text: policyText(one.Policy)},
				valueCell(o.P50.Seconds(), "s"), valueCell(o.P90.Seconds(), "s"), promisedCell(o, capacity.ProgrammingP99), valueCell(o.SlowestP99.Seconds(), "s"),
				promisedCell(o, capacity.CPU), valueCell(o.SyncsPerSecond, ""), valueCell(o.BusyShare, "ratio"), holds})
		}
	}
	return t.dropEmpty()
}

// curveTable has every outlook of the curves.
func (r *capacityReport) curveTable() pageTable {
	t := pageTable{Title: "Curves: every evaluated size", Columns: []pageColumn{{Name: "Subject"}, {Name: "Services", Numeric: true}, {Name: "Endpoints", Numeric: true, Title: "per Service"},
		{Name: "Nodes", Numeric: true}, {Name: "Endpoint changes/s", Numeric: true}, {Name: "Latency p99", Numeric: true}, {Name: "CPUs", Numeric: true}, {Name: "Memory", Numeric: true},
		{Name: "First packet", Numeric: true}, {Name: "Start", Numeric: true}, {Name: "Rules", Numeric: true}, {Name: "Partial sync", Numeric: true}, {Name: "SLOs met"}}}
	for i, s := range r.Subjects {
		for _, o := range s.Curve {
			t.Rows = append(t.Rows, []pageCell{r.subjectCell(i), intCell(o.Cluster.Services), {Text: endpointsText(o.Cluster.Endpoints), Value: exact(o.Cluster.Endpoints)}, intCell(o.Cluster.Nodes),
				valueCell(o.Cluster.Churn.Endpoints, ""), promisedCell(o, capacity.ProgrammingP99), promisedCell(o, capacity.CPU), promisedCell(o, capacity.Memory), promisedCell(o, capacity.FirstPacketP99),
				promisedCell(o, capacity.Start), estimateCell(rounded(o.Rules), "count"), estimateCell(o.PartialSync, "s"), r.holdsCell(o)})
		}
	}
	return t.dropEmpty()
}

// rounded removes the fractions of a count.
func rounded(e capacity.Estimate) capacity.Estimate {
	e.Median, e.Low, e.High = math.Round(e.Median), math.Round(e.Low), math.Round(e.High)
	return e
}

func (r *capacityReport) sensitivityTable() pageTable {
	then := sentenceCase(string(r.Unit)) + " reached"
	t := pageTable{Note: "The largest cluster, with one input changed and all others as in the question. Its basis is as for the answer above: " + r.largestBases() + ".", Columns: []pageColumn{{Name: "Subject"}, {Name: "Input"},
		{Name: "Input ×", Numeric: true}, {Name: then, Numeric: true}, {Name: "Input ×", Numeric: true}, {Name: then, Numeric: true}, {Name: "Remark"}}}
	for i, s := range r.Subjects {
		for _, one := range s.Sensitivity {
			note := pageCell{}
			switch {
			case one.CappedLower && one.CappedHigher:
				note.Text = "both searches ended there, so the values are lower bounds"
			case one.CappedLower:
				note.Text = "× " + factorText(one.Lower) + ": the search ended there, so the value is a lower bound"
			case one.CappedHigher:
				note.Text = "× " + factorText(one.Higher) + ": the search ended there, so the value is a lower bound"
			}
			t.Rows = append(t.Rows, []pageCell{r.subjectCell(i), {Text: inputText(one.Input)}, {Text: factorText(one.Lower), Value: exact(one.Lower)},
				r.reachCell(one.AtLower), {Text: factorText(one.Higher), Value: exact(one.Higher)}, r.reachCell(one.AtHigher), note})
		}
	}
	return t.dropEmpty()
}

// reachCell is a size, or 0.
func (r *capacityReport) reachCell(reach float64) pageCell {
	return pageCell{Text: r.count(reach), Value: exact(reach), Title: exact(reach) + " " + string(r.Unit)}
}

// largestBases are the bases of the largest clusters: "6,870 extrapolated ×2.9 (kube-proxy/nftables)".
func (r *capacityReport) largestBases() string {
	var out []string
	for _, s := range r.Subjects {
		out = append(out, fmt.Sprintf("%s %s (%s)", r.farText(s.Largest), basisText(s.Largest.Reach), s.Name))
	}
	return strings.Join(out, ", ")
}

func (r *capacityReport) crossoverTable() pageTable {
	t := pageTable{Title: "Each versus " + r.Subjects[0].Name + ", which is in use", Note: "Along the given growth, with the policy in use. “Beyond doubt”: the size from which the whole interval is below that of " + r.Subjects[0].Name + ". × is its value divided by that of " + r.Subjects[0].Name + ": below 1 is better.",
		Columns: []pageColumn{{Name: "Subject"}, {Name: "Quantity"}, {Name: "Better"}, {Name: "Beyond doubt"}, {Name: "× today", Numeric: true}, {Name: "× at target", Numeric: true}, {Name: "Basis of the crossing"}}}
	times := func(v float64) pageCell {
		if !(v > 0) {
			return pageCell{Text: "–", Faint: true}
		}
		return pageCell{Text: fmt.Sprintf("%.3g", v), Value: exact(v)}
	}
	for _, c := range r.crossings() {
		doubt, basis, target := pageCell{Text: "nowhere", Faint: true}, pageCell{}, pageCell{}
		switch {
		case c.clearAlways:
			doubt = pageCell{Text: "at every evaluated size"}
		case c.clear > 0:
			doubt = pageCell{Text: "from " + r.count(c.clear) + " " + string(r.Unit) + " on", Value: exact(c.clear)}
		}
		if c.Basis != "" {
			basis.Text = basisMark(c.Basis) + "\u00a0" + string(c.Basis)
		}
		if r.Target != nil {
			target = times(c.target)
		}
		t.Rows = append(t.Rows, []pageCell{r.subjectCell(c.other), {Text: c.promise.short}, {Text: r.crossingText(c)}, doubt, times(c.today), target, basis})
	}
	return t.dropEmpty()
}
