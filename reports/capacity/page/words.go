package page

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"synclab/reports/capacity"
	"synclab/reports/doc"
	"synclab/reports/records"
)

// sloQuantity is the quantity of an SLO, with its display texts.
type sloQuantity struct {
	name, text, short, unit string
}

// sloQuantities are in the order of the page.
var sloQuantities = []sloQuantity{
	{capacity.ProgrammingP99, "network programming latency of 99 of 100 changes", "latency p99", "s"},
	{capacity.CPU, "CPU of the proxier and its tools", "CPU", "CPUs"},
	{capacity.Memory, "peak memory of the proxier and its largest tool", "memory", "B"},
	{capacity.FirstPacketP99, "first packet of a flow to the last Service, 99 of 100", "first packet", "s"},
	{capacity.Start, "start: first sync into empty tables", "start", "s"},
}

// sloNamed returns the quantity of an SLO; an unknown name is its own text.
func sloNamed(name string) sloQuantity {
	for _, q := range sloQuantities {
		if q.name == name {
			return q
		}
	}
	return sloQuantity{name, name, name, ""}
}

// boundText is "≤ 1 s".
func (r *report) boundText(name string) string {
	return "≤ " + doc.TrimTick(doc.Format(r.Question.SLOs.Bound(name), sloNamed(name).unit))
}

// givenSLOs are the names of the given SLOs, in the order of the page.
func (r *report) givenSLOs() []string {
	var out []string
	for _, q := range sloQuantities {
		if r.Question.SLOs.Bound(q.name) > 0 {
			out = append(out, q.name)
		}
	}
	return out
}

func periodText(d time.Duration) string { return doc.TrimTick(doc.Format(d.Seconds(), "s")) }

// clusterText is "5,000 Services × 10 endpoints on 100 nodes, 50 changes/s".
func clusterText(c capacity.Cluster) string {
	text := fmt.Sprintf("%s × %s endpoints on %s", doc.Plural(c.Services, "Service"), records.EndpointsText(c.Endpoints), doc.Plural(c.Nodes, "node"))
	if churn := churnText(c.Churn); churn != "" {
		text += ", " + churn
	}
	return text
}

func churnText(c capacity.Churn) string {
	if len(c.Trace) > 0 {
		return "changes as recorded"
	}
	var parts []string
	add := func(v float64, text string) {
		if v > 0 {
			parts = append(parts, doc.TrimTick(doc.Significant(v))+" "+text)
		}
	}
	add(c.Endpoints, "endpoint changes/s")
	add(c.Services, "Service changes/s")
	add(c.Rollouts, "rollouts/h")
	add(c.NodeLosses, "node losses/day")
	if c.Swing > 0 {
		parts = append(parts, fmt.Sprintf("varying by %.0f %% within a day", 100*c.Swing))
	}
	return strings.Join(parts, ", ")
}

func policyText(p capacity.Policy) string {
	text := string(p.Runner)
	if text == "" {
		text = "the subject's own policy"
	}
	if p.Burst > 0 {
		text += fmt.Sprintf(", burst %d", p.Burst)
	}
	return text
}

// asked is the question, as a list of terms.
func (r *report) asked() [][2]string {
	q := r.Question
	out := [][2]string{{"today", clusterText(q.Today)}}
	if r.Target != nil {
		out = append(out, [2]string{"target", clusterText(*r.Target)})
	}
	var growth []string
	for _, g := range []struct {
		name   string
		factor float64
	}{{"Services", q.Growth.Services}, {"endpoints per Service", q.Growth.Endpoints}, {"nodes", q.Growth.Nodes}, {"churn", q.Growth.Churn}} {
		if g.factor > 0 && g.factor != 1 {
			growth = append(growth, g.name+" × "+factorText(g.factor))
		}
	}
	if max(q.Growth.Services, q.Growth.Endpoints) > 1 && q.Growth.Churn == 0 {
		growth = append(growth, "churn with the number of endpoints")
	}
	if len(growth) > 0 {
		out = append(out, [2]string{"grows by", strings.Join(growth, ", ")})
	}
	var slos []string
	for _, name := range r.givenSLOs() {
		slos = append(slos, sloNamed(name).text+" "+r.boundText(name))
	}
	if len(slos) == 0 {
		slos = []string{"none"}
	}
	if r.Defaulted {
		slos = append(slos, "all of these are defaults, since no SLO was given")
	}
	out = append(out, [2]string{"SLOs", strings.Join(slos, "; ")})
	if q.WatchDelay > 0 {
		out = append(out, [2]string{"watch delay", periodText(q.WatchDelay) + ", added to every latency"})
	}
	if q.Policy != nil {
		out = append(out, [2]string{"policy in use", policyText(*q.Policy) + ", minSyncPeriod " + periodText(q.Policy.MinSyncPeriod)})
	} else {
		out = append(out, [2]string{"policy in use", "each subject's own, minSyncPeriod 1 s"})
	}
	return append(out, [2]string{"in use today", r.Subjects[0].Name + " (the first subject)"})
}

// factorText formats a factor: 2, 1.5, 0.25.
func factorText(v float64) string { return strconv.FormatFloat(v, 'g', 2, 64) }

// count formats the size of a cluster: whole Services and nodes; other units with the significant digits.
func (r *report) count(size float64) string {
	if r.Unit.Whole() {
		return doc.Grouped(int64(math.Round(size)))
	}
	return doc.TrimTick(doc.Significant(size))
}

// limitCount formats the largest size that meets an SLO, with two significant digits.
func (r *report) limitCount(size float64) string {
	if size >= 100 {
		unit := math.Pow(10, math.Floor(math.Log10(size))-1)
		size = math.Round(size/unit) * unit
	}
	return r.count(size)
}

// sizeText is "5,000 nodes".
func (r *report) sizeText(size float64) string {
	text := r.count(size) + " " + string(r.Unit)
	if r.Unit.Whole() && size == 1 {
		return strings.TrimSuffix(text, "s")
	}
	return text
}

// largestText is the largest size that meets an SLO, without the interval: "12,300".
func (r *report) largestText(l capacity.Limit) string {
	switch {
	case l.SLO == "":
		return "–"
	case l.Never && !l.Smaller:
		return "none"
	case l.Unbounded:
		return "≥ " + r.limitCount(l.Size.Median)
	default:
		return r.limitCount(l.Size.Median)
	}
}

// interval formats the interval of a size: "9,100 – 15,000"; empty if there is none.
func (r *report) interval(size capacity.Estimate) string {
	if !(size.High > size.Low) {
		return ""
	}
	return r.limitCount(size.Low) + " – " + r.limitCount(size.High)
}

// intervalOf is "9,100 – 15,000"; empty if there is none.
func intervalOf(e capacity.Estimate, unit string) string {
	if !(e.High > e.Low) {
		return ""
	}
	if unit == "count" || unit == "" {
		return doc.Format(math.Round(e.Low), "count") + " – " + doc.Format(math.Round(e.High), "count")
	}
	low, high := doc.Format(e.Low, unit), doc.Format(e.High, unit)
	if number, of, ok := strings.Cut(low, " "); ok && strings.HasSuffix(high, " "+of) {
		low = number // one unit is enough
	}
	return low + " – " + high
}

// comparedWith is a comparison with the values of both curves.
type comparedWith struct {
	capacity.Crossing
	quantity sloQuantity
	other    int // index of the subject
	// today and target are its value divided by that of the subject in use; 0: unknown.
	today, target float64
	// clear is the size from which its whole interval is below that of the subject in use; 0: none. clearAlways: at
	// all sizes.
	clear       float64
	clearAlways bool
}

// crossings lists all comparisons with the subject in use.
func (r *report) crossings() []comparedWith {
	var out []comparedWith
	for _, c := range r.Comparisons {
		use := slices.IndexFunc(r.Subjects, func(s capacity.SubjectAnswer) bool { return s.Name == c.From })
		other := slices.IndexFunc(r.Subjects, func(s capacity.SubjectAnswer) bool { return s.Name == c.To })
		if use < 0 || other < 0 {
			continue
		}
		for _, x := range c.Crossings {
			one := comparedWith{Crossing: x, quantity: sloNamed(x.SLO), other: other}
			one.read(r.curve(use, estimateNamed(x.SLO)), r.curve(other, estimateNamed(x.SLO)), r.Subjects[use].Today.Size, r.grown())
			out = append(out, one)
		}
	}
	return out
}

// read sets the ratios and clear from two curves, where both are known.
func (c *comparedWith) read(use, its curve, today, target float64) {
	if len(use) == 0 || len(its) == 0 {
		return
	}
	low, high := max(use[0].x, its[0].x), min(use[len(use)-1].x, its[len(its)-1].x)
	ratio := func(x float64) float64 {
		if x < low/1.001 || x > high*1.001 {
			return 0
		}
		return its.at(x).Median / use.at(x).Median
	}
	c.today, c.target = ratio(today), ratio(target)
	for _, point := range slices.Backward(its) {
		if point.x < low || point.x > high {
			continue
		}
		if c.clearAlways = point.High < use.at(point.x).Low; !c.clearAlways {
			break
		}
		c.clear = point.x
	}
}

// crossingText is "from 8,000 Services on".
func (r *report) crossingText(c comparedWith) string {
	at := r.count(c.Size) + " " + string(r.Unit)
	switch {
	case c.Always:
		return "at every evaluated size"
	case c.Never:
		return "at no evaluated size"
	case c.Until:
		return "up to " + at
	default:
		return "from " + at + " on"
	}
}

// grown is the size of the target, or of today's cluster.
func (r *report) grown() float64 {
	one := r.Subjects[0]
	if one.Target != nil {
		return one.Target.Size
	}
	return one.Today.Size
}
