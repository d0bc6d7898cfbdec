package reports

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"synclab/reports/capacity"
)

// estimateCell is a number with its mark, and below it its interval and what it rests on.
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

// promisedCell is a quantity of an outlook.
func promisedCell(o capacity.Outlook, name string) pageCell {
	e, ok := o.Promised[name]
	if !ok {
		return pageCell{Text: "–", Faint: true, Title: "not measured"}
	}
	return estimateCell(e, promiseNamed(name).unit)
}

// holdsCell says whether an outlook holds what is promised.
func (r *capacityReport) holdsCell(o capacity.Outlook) pageCell {
	promised := r.promised()
	if len(promised) == 0 {
		return pageCell{Text: "–", Faint: true, Title: "nothing is promised"}
	}
	var breaks, unsure []string
	for _, name := range promised {
		switch {
		case slices.Contains(o.Breaks, name):
			breaks = append(breaks, name)
		case !slices.Contains(o.Holds, name):
			unsure = append(unsure, name)
		}
	}
	switch {
	case len(breaks) > 0:
		return pageCell{Text: "no", Sub: shortPromises(breaks), Loud: true}
	case len(unsure) > 0:
		return pageCell{Text: "perhaps", Sub: shortPromises(unsure), Title: "the promise lies within the interval"}
	}
	return pageCell{Text: "yes"}
}

// limitCell is how far a promise holds.
func (r *capacityReport) limitCell(l capacity.Limit) pageCell {
	cell := pageCell{Text: r.farText(l), Value: exact(l.Reach.Median)}
	switch {
	case l.Promise == "":
		return pageCell{Text: "–", Faint: true, Title: "nothing that is promised was measured"}
	case l.Never && !l.Smaller:
		cell.Loud, cell.Value = true, "0"
		cell.Sub = subLines("at no size looked at", basisText(l.Reach))
		return cell
	case l.Never:
		cell.Loud = true
		cell.Sub = subLines("fewer than today", r.interval(l.Reach), basisText(l.Reach))
	case l.Unbounded:
		cell.Sub = subLines("as far as was looked", basisText(l.Reach))
	default:
		cell.Sub = subLines(r.interval(l.Reach), basisText(l.Reach))
	}
	cell.Text = strings.TrimSpace(basisMark(l.Reach.Basis) + "\u00a0" + cell.Text)
	return cell
}

// answerTable is the answer, subject by subject.
func (r *capacityReport) answerTable() pageTable {
	t := pageTable{Note: "Largest cluster: " + string(r.Unit) + " up to which every promise holds with the recommended setting, with its interval; the rest of the cluster has grown with them. " +
		"“Perhaps”: the promise lies within the interval. Today and target are with the policy in use. The memory limit is the upper bound, and room.",
		Columns: []pageColumn{{Name: "Subject"}, {Name: "Largest cluster, " + string(r.Unit), Numeric: true}, {Name: "First promise to break"}, {Name: "Holds today"}, {Name: "Holds at target"},
			{Name: "Recommended minSyncPeriod"}, {Name: "Latency p99 then", Numeric: true}, {Name: "CPUs then", Numeric: true}, {Name: "Memory limit", Numeric: true}}}
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

// firstBreak is the promise that breaks first, and why.
func firstBreak(s capacity.SubjectAnswer) pageCell {
	if s.Largest.Unbounded || s.Largest.Promise == "" {
		return pageCell{Text: "none", Faint: true}
	}
	return pageCell{Text: promiseNamed(s.Largest.Promise).short, Sub: s.Largest.Why}
}

func recommendedCell(s capacity.Setting) pageCell {
	cell := pageCell{Text: periodText(s.Policy.MinSyncPeriod), Value: exact(s.Policy.MinSyncPeriod.Seconds()), Sub: policyText(s.Policy)}
	switch {
	case len(s.Outlook.Breaks) > 0:
		cell.Sub += "\nholds not all of the promise"
	case !s.Holds:
		cell.Sub += "\nholds the promise, not for sure"
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
	if e, ok := at.Promised[capacity.Memory]; ok {
		cell.Sub = basisText(e)
		cell.Text = strings.TrimSpace(basisMark(e.Basis) + "\u00a0" + cell.Text)
	}
	return cell
}

// limitsTable is how far each promise holds with the policy in use.
func (r *capacityReport) limitsTable() pageTable {
	t := pageTable{Title: "How far each promise holds, with the policy in use",
		Note: "The first to break stands first. The largest cluster of the answer is with the recommended setting, and may be larger or smaller.",
		Columns: []pageColumn{{Name: "Subject"}, {Name: "Promise"}, {Name: "Bound", Numeric: true}, {Name: "Holds up to, " + string(r.Unit), Numeric: true}, {Name: "The cluster there"},
			{Name: "Today", Numeric: true}, {Name: "Target", Numeric: true}, {Name: "What it is"}}}
	for i, s := range r.Subjects {
		for _, l := range s.Limits {
			target, there := pageCell{}, pageCell{Text: "–", Faint: true}
			if s.Target != nil {
				target = promisedCell(*s.Target, l.Promise)
			}
			if l.Cluster.Services > 0 && (!l.Never || l.Smaller) {
				there = pageCell{Text: clusterText(l.Cluster)}
				if r.Unit == capacity.InServices { // which stand beside it
					there.Text = strings.TrimPrefix(there.Text, plural(l.Cluster.Services, "Service")+" ")
				}
			}
			t.Rows = append(t.Rows, []pageCell{r.subjectCell(i), {Text: promiseNamed(l.Promise).text}, {Text: r.boundText(l.Promise), Value: exact(r.Question.Promise.Bound(l.Promise))},
				r.limitCell(l), there, promisedCell(s.Today, l.Promise), target, {Text: l.Why}})
		}
	}
	return t.dropEmpty()
}

// frontierTable are the settings that were tried for a subject, or for all (-1).
func (r *capacityReport) frontierTable(only int) pageTable {
	t := pageTable{Title: "Settings tried at " + r.frontierAt(), Columns: []pageColumn{{Name: "Subject"}, {Name: "minSyncPeriod", Numeric: true}, {Name: "Policy"},
		{Name: "Latency p50", Numeric: true}, {Name: "p90", Numeric: true}, {Name: "p99", Numeric: true}, {Name: "Slowest node's p99", Numeric: true}, {Name: "CPUs", Numeric: true},
		{Name: "Syncs a second", Numeric: true}, {Name: "Busy", Numeric: true, Title: "share of the time spent in syncs"}, {Name: "Holds the promise"}}}
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

// curveTable is every outlook of the curves.
func (r *capacityReport) curveTable() pageTable {
	t := pageTable{Title: "Curves: every size that was looked at", Columns: []pageColumn{{Name: "Subject"}, {Name: "Services", Numeric: true}, {Name: "Endpoints", Numeric: true, Title: "per Service"},
		{Name: "Nodes", Numeric: true}, {Name: "Endpoint changes/s", Numeric: true}, {Name: "Latency p99", Numeric: true}, {Name: "CPUs", Numeric: true}, {Name: "Memory", Numeric: true},
		{Name: "First packet", Numeric: true}, {Name: "Start", Numeric: true}, {Name: "Rules", Numeric: true}, {Name: "Partial sync", Numeric: true}, {Name: "Holds the promise"}}}
	for i, s := range r.Subjects {
		for _, o := range s.Curve {
			t.Rows = append(t.Rows, []pageCell{r.subjectCell(i), intCell(o.Cluster.Services), {Text: endpointsText(o.Cluster.Endpoints), Value: exact(o.Cluster.Endpoints)}, intCell(o.Cluster.Nodes),
				valueCell(o.Cluster.Churn.Endpoints, ""), promisedCell(o, capacity.ProgrammingP99), promisedCell(o, capacity.CPU), promisedCell(o, capacity.Memory), promisedCell(o, capacity.FirstPacketP99),
				promisedCell(o, capacity.Start), estimateCell(rounded(o.Rules), "count"), estimateCell(o.PartialSync, "s"), r.holdsCell(o)})
		}
	}
	return t.dropEmpty()
}

// rounded takes the fractions off a count.
func rounded(e capacity.Estimate) capacity.Estimate {
	e.Median, e.Low, e.High = math.Round(e.Median), math.Round(e.Low), math.Round(e.High)
	return e
}

func (r *capacityReport) sensitivityTable() pageTable {
	then := sentenceCase(string(r.Unit)) + " then"
	t := pageTable{Note: "The largest cluster, with one input moved and everything else as asked. What it rests on is as for the answer above: " + r.largestBases() + ".", Columns: []pageColumn{{Name: "Subject"}, {Name: "Input"},
		{Name: "Input ×", Numeric: true}, {Name: then, Numeric: true}, {Name: "Input ×", Numeric: true}, {Name: then, Numeric: true}, {Name: "Remark"}}}
	for i, s := range r.Subjects {
		for _, one := range s.Sensitivity {
			note := pageCell{}
			switch {
			case one.CappedLower && one.CappedHigher:
				note.Text = "both searches ended there: it is at least so many"
			case one.CappedLower:
				note.Text = "× " + factorText(one.Lower) + ": the search ended there, it is at least so many"
			case one.CappedHigher:
				note.Text = "× " + factorText(one.Higher) + ": the search ended there, it is at least so many"
			}
			t.Rows = append(t.Rows, []pageCell{r.subjectCell(i), {Text: inputText(one.Input)}, {Text: factorText(one.Lower), Value: exact(one.Lower)},
				r.reachCell(one.AtLower), {Text: factorText(one.Higher), Value: exact(one.Higher)}, r.reachCell(one.AtHigher), note})
		}
	}
	return t.dropEmpty()
}

// reachCell is a reach, and 0 where there is none.
func (r *capacityReport) reachCell(reach float64) pageCell {
	return pageCell{Text: r.count(reach), Value: exact(reach), Title: exact(reach) + " " + string(r.Unit)}
}

// largestBases says what the largest clusters rest on: "6,870 extrapolated ×2.9 (kube-proxy/nftables)".
func (r *capacityReport) largestBases() string {
	var out []string
	for _, s := range r.Subjects {
		out = append(out, fmt.Sprintf("%s %s (%s)", r.farText(s.Largest), basisText(s.Largest.Reach), s.Name))
	}
	return strings.Join(out, ", ")
}

func (r *capacityReport) crossoverTable() pageTable {
	t := pageTable{Title: "Each against " + r.Subjects[0].Name + ", which is in use", Note: "Along the growth as asked, with the policy in use. “Beyond doubt”: from where on the whole interval lies below that of " + r.Subjects[0].Name + ". × is its value over that of " + r.Subjects[0].Name + ": below 1 is better.",
		Columns: []pageColumn{{Name: "Subject"}, {Name: "Quantity"}, {Name: "Better"}, {Name: "Beyond doubt"}, {Name: "× today", Numeric: true}, {Name: "× at target", Numeric: true}, {Name: "The crossing is"}}}
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
			doubt = pageCell{Text: "at every size looked at"}
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
