package capacity

import (
	"cmp"
	"fmt"
	"strings"

	"synclab/reports/model"
)

// say returns the answer in sentences, the most important first.
func (a *Answer) say() []string {
	if len(a.Subjects) == 0 {
		return nil
	}
	used := &a.Subjects[0]
	p := a.Question.SLOs
	var out []string
	if s := used.sayBeyond(a); s != "" {
		out = append(out, s)
	}
	if a.Target != nil {
		out = append(out, used.sayTarget(*a.Target, p)...)
	}
	out = append(out, used.sayLargest(a.Question))
	if s := used.sayUnsure(p); s != "" && a.Target == nil {
		out = append(out, s)
	}
	if s := used.sayNext(a.Question); s != "" {
		out = append(out, s)
	}
	out = append(out, used.sayRecommended(a.Question))
	if s := used.sayFurthest(a.Question); s != "" {
		out = append(out, s)
	}
	if used.MemoryLimit > 0 {
		out = append(out, fmt.Sprintf("Set the memory limit of the pod to %s: the upper bound for %s, plus a quarter.", amount(Memory, float64(used.MemoryLimit), model.Measured), a.planned().size(model.Measured)))
	}
	if s := a.sayChange(); s != "" {
		out = append(out, s)
	}
	if s := used.saySensitivity(a.Question.Growth.Unit()); s != "" {
		out = append(out, s)
	}
	if a.Defaulted {
		var each []string
		for _, name := range p.Given() {
			each = append(each, words[name].name+" "+boundText(p, name))
		}
		out = append(out, "No SLOs were given; these defaults apply: "+strings.Join(each, ", ")+".")
	}
	return out
}

// Up to the factor knownBeyond, a size counts as measured. Up to triedBeyond, predictions were tested on cells held out
// of the fit.
const knownBeyond, triedBeyond = 1.1, 5

// sayBeyond is the first sentence if the limit or the target lies beyond the measured sizes.
func (s *SubjectAnswer) sayBeyond(a *Answer) string {
	what, e := "The limit", s.Largest.Size
	if s.Largest.SLO == "" {
		e = Estimate{}
	}
	if s.Target != nil {
		for _, name := range a.Question.SLOs.Given() {
			if at, known := s.Target.Quantities[name]; known && worse(at, e) == at && at.Basis == model.Extrapolated {
				what, e = "The target", at
			}
		}
	}
	if e.Basis != model.Extrapolated || e.Beyond <= knownBeyond || e.Below {
		return ""
	}
	of := "the largest measured size"
	if e.Changed {
		of = "the measured number of changed Services in one sync"
	}
	further := ""
	if e.Beyond > triedBeyond {
		further = fmt.Sprintf(", further than predictions were tested (%d times)", triedBeyond)
	}
	return fmt.Sprintf("%s lies beyond the measured sizes: it is extrapolated to %s times %s%s.", what, digits(e.Beyond, model.Extrapolated), of, further)
}

// planned is the cluster of the recommended settings: the target or, without one, today's.
func (a *Answer) planned() Cluster {
	if a.Target != nil {
		return *a.Target
	}
	return a.Question.Today
}

// count formats a number in the unit.
func (u Unit) count(v float64, b model.Basis) string { return digits(v, b) + " " + string(u) }

// size formats the size of a cluster.
func (c Cluster) size(b model.Basis) string {
	return fmt.Sprintf("%s Service%s with %s each", digits(float64(c.Services), b), plural(c.Services), c.endpoints(b))
}

// endpoints formats the endpoints of a Service.
func (c Cluster) endpoints(b model.Basis) string {
	text := digits(c.Endpoints, b)
	if text == "1" {
		return text + " endpoint"
	}
	return text + " endpoints"
}

// restsOn formats the basis of an extrapolated number; empty for others.
func restsOn(e Estimate) string {
	if e.Basis != model.Extrapolated {
		return ""
	}
	times, trust := digits(e.Beyond, model.Extrapolated), ""
	if e.Beyond > mostBeyond {
		trust = ": not reliable"
	}
	switch {
	case times == "1":
		return " (extrapolated, just beyond the measured sizes)"
	case e.Below:
		return fmt.Sprintf(" (extrapolated to %s times below the smallest measured size)", times)
	case e.Changed:
		return fmt.Sprintf(" (extrapolated to %s times the measured number of changed Services in one sync%s)", times, trust)
	}
	return fmt.Sprintf(" (extrapolated to %s times the largest measured size%s)", times, trust)
}

// sayUnsure names the SLOs that today's cluster meets at the median, but not at the upper bound.
func (s *SubjectAnswer) sayUnsure(p SLOs) string {
	var unsure verdict
	for _, name := range p.Given() {
		if e, known := s.Today.Quantities[name]; known && e.Median <= p.Bound(name) && e.High > p.Bound(name) {
			unsure.add(name, fmt.Sprintf("%s %s (SLO %s)", words[name].name, between(name, e), boundText(p, name)), e)
		}
	}
	if len(unsure.figures) == 0 {
		return ""
	}
	return fmt.Sprintf("Today, it is uncertain whether these SLOs are met: %s%s.", strings.Join(unsure.figures, ", "), restsOn(unsure.farthest))
}

// mostFigures is the largest number of violated SLOs with figures in the first sentence. With more, that sentence only
// names them.
const mostFigures = 1

func (s *SubjectAnswer) sayTarget(target Cluster, p SLOs) []string {
	var broken, unsure, kept verdict
	for _, name := range p.Given() {
		e, known := s.Target.Quantities[name]
		figure := fmt.Sprintf("%s %s (SLO %s)", words[name].name, between(name, e), boundText(p, name))
		switch {
		case !known:
		case e.Median > p.Bound(name):
			broken.add(name, figure, e)
		case e.High > p.Bound(name):
			unsure.add(name, figure, e)
		default:
			kept.add(name, figure, e)
		}
	}
	at := fmt.Sprintf("At the target, %s, %s", target.size(model.Measured), s.Name)
	switch {
	case len(broken.figures) > mostFigures:
		return []string{fmt.Sprintf("%s violates %d SLOs: %s.", at, len(broken.figures), strings.Join(broken.names, ", ")),
			fmt.Sprintf("The figures: %s%s.", strings.Join(broken.figures, ", "), restsOn(broken.farthest))}
	case len(broken.figures) > 0:
		return []string{fmt.Sprintf("%s violates an SLO: %s%s.", at, broken.figures[0], restsOn(broken.farthest))}
	case len(unsure.figures) > 0:
		return []string{fmt.Sprintf("%s meets the SLOs at the median, but not for sure: %s%s.", at, strings.Join(unsure.figures, ", "), restsOn(unsure.farthest))}
	case len(kept.figures) == len(p.Given()):
		return []string{fmt.Sprintf("%s meets all SLOs: %s%s.", at, strings.Join(kept.figures, ", "), restsOn(kept.farthest))}
	case len(kept.figures) > 0:
		return []string{fmt.Sprintf("%s meets the SLOs with a measured quantity: %s%s.", at, strings.Join(kept.figures, ", "), restsOn(kept.farthest))}
	}
	return []string{at + ": no quantity of an SLO was measured."}
}

// verdict collects the SLOs with the same result.
type verdict struct {
	names, figures []string
	farthest       Estimate // the least certain one
}

func (v *verdict) add(name, figure string, e Estimate) {
	v.names, v.figures = append(v.names, words[name].name), append(v.figures, figure)
	v.farthest = worse(e, v.farthest)
}

// between formats an estimate with its bounds.
func between(name string, e Estimate) string {
	median, low, high := amount(name, e.Median, e.Basis), amount(name, e.Low, e.Basis), amount(name, e.High, e.Basis)
	if low == high {
		return median
	}
	return fmt.Sprintf("%s, between %s and %s", median, low, high)
}

func (s *SubjectAnswer) sayLargest(q Question) string {
	l, p := s.Largest, q.SLOs
	who := s.Name
	if !s.Recommended.InUse {
		who += fmt.Sprintf(", with minSyncPeriod %s (%s),", period(s.Recommended.Policy.MinSyncPeriod), s.Recommended.Policy.Runner)
	}
	unit := q.Growth.Unit()
	limit := unit.count(l.Size.Median, model.Extrapolated) // two digits, as for extrapolated numbers
	size, each, further := limit, "", "this is the end of the cost model's range"
	switch unit {
	case InServices:
		size, each = l.Cluster.size(model.Extrapolated), fmt.Sprintf(" with %s each", l.Cluster.endpoints(l.Size.Basis))
	case InNodes:
		further = "the work of a proxier hardly depends on the number of nodes"
	case InChanges:
		further = "every change is simulated"
	}
	further = cmp.Or(l.End, further)
	switch {
	case l.SLO == "":
		return fmt.Sprintf("For %s, no quantity of an SLO was measured: its limit is unknown.", s.Name)
	case l.Unbounded:
		return fmt.Sprintf("%s meets all SLOs up to at least %s%s; the search ended there: %s.", who, size, restsOn(l.Size), further)
	case l.Never && !l.Smaller:
		return fmt.Sprintf("%s violates the SLO for %s today, and in every smaller cluster that was evaluated: %s.", who, words[l.SLO].name, l.Why)
	case l.Never:
		return fmt.Sprintf("%s violates the SLO for %s (%s) today; the SLO is met up to %s%s. The reason: %s.", who, words[l.SLO].name,
			boundText(p, l.SLO), limit, restsOn(l.Size), l.Why)
	}
	return fmt.Sprintf("A cluster with %s can grow to about %s (between %s and %s)%s%s; then %s violates its SLO (%s) first: %s.", who,
		limit, digits(l.Size.Low, model.Extrapolated), digits(l.Size.High, model.Extrapolated), each, restsOn(l.Size), words[l.SLO].breaks, boundText(p, l.SLO), l.Why)
}

// sayNext names the SLO that is violated after the first one.
func (s *SubjectAnswer) sayNext(q Question) string {
	if s.Largest.Unbounded {
		return ""
	}
	for _, l := range s.RecommendedLimits {
		if l.SLO == s.Largest.SLO || l.Unbounded {
			continue
		}
		if l.Size.Median == 0 {
			return fmt.Sprintf("The SLO for %s (%s) is violated at every evaluated size, too.", words[l.SLO].name, boundText(q.SLOs, l.SLO))
		}
		return fmt.Sprintf("The SLO for %s (%s) is violated next, at about %s%s.", words[l.SLO].name, boundText(q.SLOs, l.SLO),
			q.Growth.Unit().count(l.Size.Median, model.Extrapolated), restsOn(l.Size))
	}
	return ""
}

func (s *SubjectAnswer) sayRecommended(q Question) string {
	r := s.Recommended
	latency, cpu := r.Outlook.Quantities[ProgrammingP99], r.Outlook.Quantities[CPU]
	if s.holdsNowhere(q.SLOs) {
		return s.sayNowhere(q)
	}
	if r.Outlook.Changes == 0 {
		return fmt.Sprintf("Nothing changes in this cluster, so minSyncPeriod has no effect: keep it at %s (%s).", period(r.Policy.MinSyncPeriod), r.Policy.Runner)
	}
	gives := fmt.Sprintf("the 99th percentile of network programming latency is %s, for %s%s", amount(ProgrammingP99, latency.Median, latency.Basis),
		amount(CPU, cpu.Median, cpu.Basis), restsOn(worse(latency, cpu)))
	if r.InUse {
		return fmt.Sprintf("Keep minSyncPeriod at %s (%s): %s.", period(r.Policy.MinSyncPeriod), r.Policy.Runner, gives)
	}
	now := ""
	for _, other := range s.Frontier {
		if other.InUse {
			l, c := other.Outlook.Quantities[ProgrammingP99], other.Outlook.Quantities[CPU]
			now = fmt.Sprintf("; today, with %s (%s), it is %s, for %s", period(other.Policy.MinSyncPeriod), other.Policy.Runner,
				amount(ProgrammingP99, l.Median, l.Basis), amount(CPU, c.Median, c.Basis))
		}
	}
	return fmt.Sprintf("Set minSyncPeriod to %s (%s): %s%s.", period(r.Policy.MinSyncPeriod), r.Policy.Runner, gives, now)
}

// holdsNowhere reports whether no setting meets the SLOs for latency and CPU, at the median.
func (s *SubjectAnswer) holdsNowhere(p SLOs) bool {
	for _, name := range []string{ProgrammingP99, CPU} {
		if bound := p.Bound(name); bound > 0 && s.Recommended.Outlook.Quantities[name].Median > bound {
			return true
		}
	}
	return false
}

func (s *SubjectAnswer) sayNowhere(q Question) string {
	p, r := q.SLOs, s.Recommended
	latency, cpu := r.Outlook.Quantities[ProgrammingP99], r.Outlook.Quantities[CPU]
	kept := "the SLO for latency"
	switch {
	case p.ProgrammingP99 == 0:
		kept = "the SLO for CPU"
	case p.CPU > 0:
		kept = "the SLOs for both latency and CPU"
	}
	where := fmt.Sprintf("At %s, no evaluated minSyncPeriod meets %s", q.Growth.Unit().count(r.Outlook.Size, model.Measured), kept)
	if s.Furthest.Size == 0 {
		return where + ", and none meets all SLOs in a smaller evaluated cluster."
	}
	return fmt.Sprintf("%s; %s (%s) reaches the largest cluster, but here its 99th percentile of network programming latency is %s, for %s.", where, period(r.Policy.MinSyncPeriod),
		r.Policy.Runner, amount(ProgrammingP99, latency.Median, latency.Basis), amount(CPU, cpu.Median, cpu.Basis))
}

// sayFurthest names the setting that reaches a larger cluster than the recommended one, if the difference matters.
func (s *SubjectAnswer) sayFurthest(q Question) string {
	f := s.Furthest
	if f.Size == 0 || f.Policy == s.Recommended.Policy || f.Size < 1.1*s.Largest.Size.Median {
		return ""
	}
	more := ""
	if f.Unbounded {
		more = " or more"
	}
	return fmt.Sprintf("For more growth, change the setting later: with minSyncPeriod %s (%s), all SLOs are met up to about %s%s.",
		period(f.Policy.MinSyncPeriod), f.Policy.Runner, q.Growth.Unit().count(f.Size, model.Extrapolated), more)
}

// paying is the ratio of sizes from which a change of the subject pays.
const paying = 1.05

// sayChange names the subject that reaches the largest cluster, if it is not the one in use. If the intervals overlap,
// the sentence says so.
func (a *Answer) sayChange() string {
	if len(a.Subjects) < 2 {
		return ""
	}
	used := &a.Subjects[0]
	if used.Largest.Unbounded {
		return fmt.Sprintf("No reason to change was found: %s meets all SLOs up to the largest evaluated size.", used.Name)
	}
	far := func(i int) float64 { return a.Subjects[i].Largest.Size.Median }
	best := 0
	for i := range a.Subjects {
		if far(i) > far(best) {
			best = i
		}
	}
	if far(best) <= paying*far(0) {
		return fmt.Sprintf("No other subject (%d compared) reaches a larger cluster.", len(a.Subjects)-1)
	}
	pays := "Changing pays: "
	if a.Subjects[best].Largest.Size.Low <= used.Largest.Size.High {
		pays = "Changing may pay, but the intervals of the two overlap: "
	}
	for _, c := range a.Comparisons {
		if c.To == a.Subjects[best].Name {
			return pays + c.Words
		}
	}
	return ""
}

func (s *SubjectAnswer) saySensitivity(u Unit) string {
	if len(s.Sensitivity) == 0 || s.Sensitivity[0].swing(u) < 0.02 {
		return ""
	}
	m := s.Sensitivity[0]
	about := func(v float64, capped bool) string {
		switch {
		case capped:
			return "at least " + u.count(v, model.Extrapolated)
		case v == 0:
			return "none"
		}
		return "about " + u.count(v, model.Extrapolated)
	}
	return fmt.Sprintf("The largest cluster depends most on %s: with a factor of %s it is %s, with a factor of %s %s.", inputWords[m.Input],
		digits(m.Lower, model.Extrapolated), about(m.AtLower, m.CappedLower), digits(m.Higher, model.Extrapolated), about(m.AtHigher, m.CappedHigher))
}

var inputWords = map[string]string{
	"churn": "the churn", "endpoints": "the endpoints of each Service", "nodes": "the number of nodes",
	"minSyncPeriod": "minSyncPeriod", "cost": "the cost of a sync (within the interval of the cost model)",
}
