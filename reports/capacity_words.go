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

// promiseText is a promise, or what would be one, for people.
type promiseText struct {
	name, text, short, unit string
}

// promiseTexts in the order of the page.
var promiseTexts = []promiseText{
	{capacity.ProgrammingP99, "network programming latency, 99 of 100 changes", "latency p99", "s"},
	{capacity.CPU, "CPU of the proxier and its tools", "CPU", "CPUs"},
	{capacity.Memory, "memory, proxier and largest tool at their peaks", "memory", "B"},
	{capacity.FirstPacketP99, "first packet of a flow to the last Service", "first packet", "s"},
	{capacity.Start, "start: first sync into empty tables", "start", "s"},
}

// promiseNamed falls back on the name itself.
func promiseNamed(name string) promiseText {
	for _, p := range promiseTexts {
		if p.name == name {
			return p
		}
	}
	return promiseText{name, name, name, ""}
}

// bound is what is promised, in the promise's unit; 0: not promised.
func bound(p capacity.Promise, name string) float64 {
	switch name {
	case capacity.ProgrammingP99:
		return p.ProgrammingP99.Seconds()
	case capacity.CPU:
		return p.CPU
	case capacity.Memory:
		return float64(p.Memory)
	case capacity.FirstPacketP99:
		return p.FirstPacketP99.Seconds()
	case capacity.Start:
		return p.Start.Seconds()
	}
	return 0
}

// boundText is "≤ 1 s".
func (r *capacityReport) boundText(name string) string {
	return "≤ " + trimTick(Format(bound(r.Question.Promise, name), promiseNamed(name).unit))
}

// promised are the names of what is promised, in the order of the page.
func (r *capacityReport) promised() []string {
	var out []string
	for _, p := range promiseTexts {
		if bound(r.Question.Promise, p.name) > 0 {
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
		parts = append(parts, fmt.Sprintf("swinging by %.0f %% within a day", 100*c.Swing))
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

// asked is the question, for a list of terms.
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
	if len(growth) > 0 && q.Growth.Churn == 0 {
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
		promises = []string{"nothing"}
	}
	out = append(out, [2]string{"promised", strings.Join(promises, "; ")})
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

// factorText writes a factor: 2, 1.5, 0.25.
func factorText(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }

// growthAxis is what the curves are drawn against: Services, or where these do not grow, what does.
type growthAxis struct {
	name string
	of   func(capacity.Cluster) float64
}

func axisOf(a *capacity.Answer) growthAxis {
	all := []growthAxis{
		{"Services", func(c capacity.Cluster) float64 { return float64(c.Services) }},
		{"endpoints in all", func(c capacity.Cluster) float64 { return float64(c.Services) * c.Endpoints }},
		{"nodes", func(c capacity.Cluster) float64 { return float64(c.Nodes) }},
		{"endpoint changes a second", func(c capacity.Cluster) float64 { return c.Churn.Endpoints }},
	}
	for _, axis := range all {
		low, high := math.Inf(1), 0.0
		for _, s := range a.Subjects {
			for _, o := range s.Curve {
				low, high = min(low, axis.of(o.Cluster)), max(high, axis.of(o.Cluster))
			}
		}
		if low > 0 && high > low*1.01 {
			return axis
		}
	}
	return all[0]
}

// farText is how far a promise holds, without the interval: "12,300 Services".
func farText(l capacity.Limit) string {
	switch {
	case l.Never:
		return "not even today"
	case l.Unbounded:
		return "≥ " + Grouped(int64(math.Round(l.Services.Median)))
	default:
		return Grouped(int64(math.Round(l.Services.Median)))
	}
}

// intervalOf is "9,100 – 15,000", empty where there is none.
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

// crossover says where another subject becomes better than the one in use in one quantity.
type crossover struct {
	promise promiseText
	other   int // index of the subject
	// today and target are its value over that of the subject in use.
	today, target float64
	// from is where on the axis it becomes better, to where it becomes worse; 0: nowhere between the ends of the curves.
	from, to float64
	// clear is from where on its whole interval is below that of the subject in use; 0: nowhere.
	clear float64
	basis model.Basis // at the crossing, else at the target
	// within says how it is at the smaller end: better there.
	better bool
	low    float64 // ends of the curves
	high   float64
}

// crossovers of all subjects against the first.
func (r *capacityReport) crossovers() []crossover {
	var out []crossover
	for i := range r.Subjects[1:] {
		for _, p := range promiseTexts {
			if c, ok := r.crossoverOf(i+1, p); ok {
				out = append(out, c)
			}
		}
	}
	return out
}

func (r *capacityReport) crossoverOf(other int, p promiseText) (crossover, bool) {
	use, its := r.curve(0, estimateNamed(p.name)), r.curve(other, estimateNamed(p.name))
	if len(use) < 2 || len(its) < 2 {
		return crossover{}, false
	}
	c := crossover{promise: p, other: other, low: max(use[0].x, its[0].x), high: min(use[len(use)-1].x, its[len(its)-1].x)}
	var places []float64
	for _, point := range slices.Concat(use, its) {
		if point.x >= c.low && point.x <= c.high {
			places = append(places, point.x)
		}
	}
	slices.Sort(places)
	places = slices.Compact(places)
	if len(places) < 2 {
		return c, false
	}
	gap := func(x float64) float64 { return math.Log(its.at(x).Median / use.at(x).Median) }
	for i, x := range places[1:] {
		before, after := gap(places[i]), gap(x)
		switch at := crossing(places[i], x, before, after); {
		case before >= 0 && after < 0:
			c.from, c.to = at, 0
		case before < 0 && after >= 0:
			c.to = at
		}
	}
	for _, x := range slices.Backward(places) {
		if !(its.at(x).High < use.at(x).Low) {
			break
		}
		c.clear = x
	}
	c.better = gap(places[0]) < 0
	today, target := r.axis.of(r.Question.Today), r.axis.of(r.grown())
	c.today, c.target = math.Exp(gap(min(max(today, c.low), c.high))), math.Exp(gap(min(max(target, c.low), c.high)))
	at := target
	if c.from > 0 {
		at = c.from
	}
	c.basis = worseBasis(use.at(at).Basis, its.at(at).Basis)
	return c, true
}

// crossing is where a line between two places is 0, on a logarithmic axis.
func crossing(x0, x1, y0, y1 float64) float64 {
	if y0 == y1 {
		return x0
	}
	share := y0 / (y0 - y1)
	return x0 * math.Pow(x1/x0, share)
}

// grown is the target, or the cluster of today.
func (r *capacityReport) grown() capacity.Cluster {
	if r.Target != nil {
		return *r.Target
	}
	return r.Question.Today
}

// words is "from 8,000 Services on".
func (c crossover) words(axis string) string {
	at := func(x float64) string { return Grouped(int64(math.Round(x))) + " " + axis }
	switch {
	case c.from > 0 && c.to > 0:
		return "from " + at(c.from) + " to " + at(c.to)
	case c.from > 0:
		return "from " + at(c.from) + " on"
	case c.to > 0:
		return "up to " + at(c.to)
	case c.better:
		return "at every size looked at"
	default:
		return "at no size looked at"
	}
}

// backendSentences say whether and when to change.
func (r *capacityReport) backendSentences() []string {
	use := r.Subjects[0]
	var out []string
	for i, s := range r.Subjects[1:] {
		words := fmt.Sprintf("%s instead of %s: ", s.Name, use.Name)
		switch {
		case use.Largest.Never && s.Largest.Never:
			words += "neither holds the promise today"
		case use.Largest.Never:
			words += "pays at once, since the promise is broken today and would hold up to " + farText(s.Largest) + " Services"
		case s.Largest.Never:
			words += "does not pay, since the promise would be broken today"
		case s.Largest.Unbounded && use.Largest.Unbounded:
			words += "both hold the promise as far as was looked"
		default:
			words += fmt.Sprintf("the promise holds up to %s instead of %s Services", farText(s.Largest), farText(use.Largest))
			switch {
			case s.Largest.Services.Low > use.Largest.Services.High:
				words += ", further beyond doubt"
			case s.Largest.Services.High < use.Largest.Services.Low:
				words += ", less far beyond doubt"
			default:
				words += ", but the intervals overlap"
			}
		}
		words += " (" + string(worseBasis(use.Largest.Services.Basis, s.Largest.Services.Basis)) + ")"
		var less []string
		for _, c := range r.crossovers() {
			if c.other == i+1 && (c.from > 0 || c.better) {
				less = append(less, fmt.Sprintf("%s %s", c.promise.short, c.words(r.axis.name)))
			}
		}
		if len(less) > 0 {
			words += ". It is better in " + joinWords(less)
		}
		out = append(out, beforeUnit.ReplaceAllString(words+".", "$1\u00a0$2"))
	}
	return out
}

// worseBasis is the one that says less.
func worseBasis(a, b model.Basis) model.Basis {
	order := []model.Basis{model.Measured, model.Interpolated, model.Extrapolated}
	if slices.Index(order, a) >= slices.Index(order, b) {
		return a
	}
	return b
}
