package reports

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"synclab/reports/capacity"
	"synclab/reports/model"
)

// promiseText is the display text of an SLO's quantity.
type promiseText struct {
	name, text, short, unit string
}

// promiseTexts are in the order of the page.
var promiseTexts = []promiseText{
	{capacity.ProgrammingP99, "network programming latency of 99 of 100 changes", "latency p99", "s"},
	{capacity.CPU, "CPU of the proxier and its tools", "CPU", "CPUs"},
	{capacity.Memory, "peak memory of the proxier and its largest tool", "memory", "B"},
	{capacity.FirstPacketP99, "first packet of a flow to the last Service, 99 of 100", "first packet", "s"},
	{capacity.Start, "start: first sync into empty tables", "start", "s"},
}

// promiseNamed returns the texts of an SLO; an unknown name is its own text.
func promiseNamed(name string) promiseText {
	for _, p := range promiseTexts {
		if p.name == name {
			return p
		}
	}
	return promiseText{name, name, name, ""}
}

// boundText is "≤ 1 s".
func (r *capacityReport) boundText(name string) string {
	return "≤ " + trimTick(Format(r.Question.SLOs.Bound(name), promiseNamed(name).unit))
}

// promised are the names of the given SLOs, in the order of the page.
func (r *capacityReport) promised() []string {
	var out []string
	for _, p := range promiseTexts {
		if r.Question.SLOs.Bound(p.name) > 0 {
			out = append(out, p.name)
		}
	}
	return out
}

// shortPromises is "CPU and memory".
func shortPromises(names []string) string {
	var out []string
	for _, name := range names {
		out = append(out, promiseNamed(name).short)
	}
	return joinWords(out)
}

func periodText(d time.Duration) string { return trimTick(Format(d.Seconds(), "s")) }

// clusterText is "5,000 Services × 10 endpoints on 100 nodes, 50 changes/s".
func clusterText(c capacity.Cluster) string {
	text := fmt.Sprintf("%s × %s endpoints on %s", plural(c.Services, "Service"), endpointsText(c.Endpoints), plural(c.Nodes, "node"))
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
			parts = append(parts, trimTick(significant(v))+" "+text)
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
func (r *capacityReport) asked() [][2]string {
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
	var promises []string
	for _, name := range r.promised() {
		promises = append(promises, promiseNamed(name).text+" "+r.boundText(name))
	}
	if len(promises) == 0 {
		promises = []string{"none"}
	}
	if r.Defaulted {
		promises = append(promises, "all of these are defaults, since no SLO was given")
	}
	out = append(out, [2]string{"SLOs", strings.Join(promises, "; ")})
	if q.WatchDelay > 0 {
		out = append(out, [2]string{"watch delay", periodText(q.WatchDelay) + ", added to every latency"})
	}
	if q.Policy != nil {
		out = append(out, [2]string{"policy in use", policyText(*q.Policy) + ", minSyncPeriod " + periodText(q.Policy.MinSyncPeriod)})
	} else {
		out = append(out, [2]string{"policy in use", "each subject's own, minSyncPeriod 1 s"})
	}
	out = append(out, [2]string{"in use today", r.Subjects[0].Name + " (the first subject)"})
	for i := range out {
		out[i][1] = beforeUnit.ReplaceAllString(out[i][1], "$1\u00a0$2")
	}
	return out
}

// factorText formats a factor: 2, 1.5, 0.25.
func factorText(v float64) string { return strconv.FormatFloat(v, 'g', 2, 64) }

// count formats the size of a cluster: whole Services and nodes; other units with the significant digits.
func (r *capacityReport) count(reach float64) string {
	if r.Unit.Whole() {
		return Grouped(int64(math.Round(reach)))
	}
	return trimTick(significant(reach))
}

// limitCount formats the largest size that meets an SLO, with two significant digits.
func (r *capacityReport) limitCount(reach float64) string {
	if reach >= 100 {
		unit := math.Pow(10, math.Floor(math.Log10(reach))-1)
		reach = math.Round(reach/unit) * unit
	}
	return r.count(reach)
}

// reachText is "5,000 nodes".
func (r *capacityReport) reachText(reach float64) string {
	text := r.count(reach) + " " + string(r.Unit)
	if r.Unit.Whole() && reach == 1 {
		return strings.TrimSuffix(text, "s")
	}
	return text
}

// farText is the largest size that meets an SLO, without the interval: "12,300".
func (r *capacityReport) farText(l capacity.Limit) string {
	switch {
	case l.SLO == "":
		return "–"
	case l.Never && !l.Smaller:
		return "none"
	case l.Unbounded:
		return "≥ " + r.limitCount(l.Reach.Median)
	default:
		return r.limitCount(l.Reach.Median)
	}
}

// interval formats the interval of a size: "9,100 – 15,000"; empty if there is none.
func (r *capacityReport) interval(reach capacity.Estimate) string {
	if !(reach.High > reach.Low) {
		return ""
	}
	return r.limitCount(reach.Low) + " – " + r.limitCount(reach.High)
}

// intervalOf is "9,100 – 15,000"; empty if there is none.
func intervalOf(e capacity.Estimate, unit string) string {
	if !(e.High > e.Low) {
		return ""
	}
	if unit == "count" || unit == "" {
		return Format(math.Round(e.Low), "count") + " – " + Format(math.Round(e.High), "count")
	}
	low, high := Format(e.Low, unit), Format(e.High, unit)
	if number, of, ok := strings.Cut(low, " "); ok && strings.HasSuffix(high, " "+of) {
		low = number // one unit is enough
	}
	return low + " – " + high
}

// comparedWith is a comparison with the values of both curves.
type comparedWith struct {
	capacity.Crossing
	promise promiseText
	other   int // index of the subject
	// today and target are its value divided by that of the subject in use; 0: unknown.
	today, target float64
	// clear is the size from which its whole interval is below that of the subject in use; 0: none. clearAlways: at
	// all sizes.
	clear       float64
	clearAlways bool
}

// crossings lists all comparisons with the subject in use.
func (r *capacityReport) crossings() []comparedWith {
	var out []comparedWith
	for _, c := range r.Comparisons {
		use := slices.IndexFunc(r.Subjects, func(s capacity.SubjectAnswer) bool { return s.Name == c.From })
		other := slices.IndexFunc(r.Subjects, func(s capacity.SubjectAnswer) bool { return s.Name == c.To })
		if use < 0 || other < 0 {
			continue
		}
		for _, x := range c.Crossings {
			one := comparedWith{Crossing: x, promise: promiseNamed(x.SLO), other: other}
			one.read(r.curve(use, estimateNamed(x.SLO)), r.curve(other, estimateNamed(x.SLO)), r.Subjects[use].Today.Reach, r.grown())
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
func (r *capacityReport) crossingText(c comparedWith) string {
	at := r.count(c.Reach) + " " + string(r.Unit)
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
func (r *capacityReport) grown() float64 {
	one := r.Subjects[0]
	if one.Target != nil {
		return one.Target.Reach
	}
	return one.Today.Reach
}

// backendSentences state whether and when to change the backend.
func (r *capacityReport) backendSentences() []string {
	var out []string
	for _, c := range r.Comparisons {
		out = append(out, beforeUnit.ReplaceAllString(c.Words, "$1\u00a0$2"))
	}
	return out
}

// worseBasis returns the less certain of two bases.
func worseBasis(a, b model.Basis) model.Basis {
	order := []model.Basis{model.Measured, model.Interpolated, model.Extrapolated}
	if slices.Index(order, a) >= slices.Index(order, b) {
		return a
	}
	return b
}
