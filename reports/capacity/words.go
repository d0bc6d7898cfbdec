package capacity

import (
	"cmp"
	"fmt"
	"strings"

	"synclab/reports/model"
)

// say is the answer in plain words, the most important first.
func (a *Answer) say() []string {
	if len(a.Subjects) == 0 {
		return nil
	}
	used := &a.Subjects[0]
	p := a.Question.Promise
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
		out = append(out, fmt.Sprintf("Give its pod a memory limit of %s: the upper bound for %s, and a quarter more.", amount(Memory, float64(used.MemoryLimit), model.Measured), a.planned().size(model.Measured)))
	}
	if s := a.sayChange(); s != "" {
		out = append(out, s)
	}
	if s := used.saySensitivity(a.Question.Growth.Unit()); s != "" {
		out = append(out, s)
	}
	if a.Defaulted {
		var each []string
		for _, name := range p.Promised() {
			each = append(each, words[name].name+" "+promised(p, name))
		}
		out = append(out, "Nothing was promised, so these were taken: "+strings.Join(each, ", ")+".")
	}
	return out
}

// What is known: up to the first it counts as measured, and up to the second predictions were tried on cells held out.
const knownBeyond, triedBeyond = 1.1, 5

// sayBeyond says, before anything else, that the limit or the target lies where nothing was measured.
func (s *SubjectAnswer) sayBeyond(a *Answer) string {
	what, e := "The limit", s.Largest.Reach
	if s.Largest.Promise == "" {
		e = Estimate{}
	}
	if s.Target != nil {
		for _, name := range a.Question.Promise.Promised() {
			if at, known := s.Target.Promised[name]; known && worse(at, e) == at && at.Basis == model.Extrapolated {
				what, e = "The target", at
			}
		}
	}
	if e.Basis != model.Extrapolated || e.Beyond <= knownBeyond || e.Below {
		return ""
	}
	of := "what was measured"
	if e.Changed {
		of = "as many changed Services in one sync as were measured"
	}
	further := ""
	if e.Beyond > triedBeyond {
		further = fmt.Sprintf(", further than predictions were tried (%d times)", triedBeyond)
	}
	return fmt.Sprintf("%s lies beyond what is known: it is extrapolated to %s times %s%s.", what, digits(e.Beyond, model.Extrapolated), of, further)
}

// planned is the cluster that settings are for.
func (a *Answer) planned() Cluster {
	if a.Target != nil {
		return *a.Target
	}
	return a.Question.Today
}

// count writes a number in the unit.
func (u Unit) count(v float64, b model.Basis) string { return digits(v, b) + " " + string(u) }

// size of a cluster in words.
func (c Cluster) size(b model.Basis) string {
	return fmt.Sprintf("%s Service%s with %s endpoints each", digits(float64(c.Services), b), plural(c.Services), digits(c.Endpoints, b))
}

// rests says what a number rests on, where that has to be said.
func restsOn(e Estimate) string {
	if e.Basis != model.Extrapolated {
		return ""
	}
	times, trust := digits(e.Beyond, model.Extrapolated), ""
	if e.Beyond > mostBeyond {
		trust = ": not to be trusted"
	}
	switch {
	case times == "1":
		return " (extrapolated, just beyond what was measured)"
	case e.Below:
		return fmt.Sprintf(" (extrapolated to %s times below the smallest size that was measured)", times)
	case e.Changed:
		return fmt.Sprintf(" (extrapolated to %s times as many changed Services in one sync as were measured%s)", times, trust)
	}
	return fmt.Sprintf(" (extrapolated to %s times what was measured%s)", times, trust)
}

// sayUnsure names what may not hold today already, though it does by the median.
func (s *SubjectAnswer) sayUnsure(p Promise) string {
	var unsure verdict
	for _, name := range p.Promised() {
		if e, known := s.Today.Promised[name]; known && e.Median <= p.Bound(name) && e.High > p.Bound(name) {
			unsure.add(name, fmt.Sprintf("%s %s (promised %s)", words[name].name, between(name, e), promised(p, name)), e)
		}
	}
	if len(unsure.figures) == 0 {
		return ""
	}
	return fmt.Sprintf("Today that is not sure of %s%s.", strings.Join(unsure.figures, ", "), restsOn(unsure.farthest))
}

// mostFigures of broken promises are told in the first sentence; where more break, it only names them.
const mostFigures = 1

func (s *SubjectAnswer) sayTarget(target Cluster, p Promise) []string {
	var broken, unsure, kept verdict
	for _, name := range p.Promised() {
		e, known := s.Target.Promised[name]
		figure := fmt.Sprintf("%s %s (promised %s)", words[name].name, between(name, e), promised(p, name))
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
		return []string{fmt.Sprintf("%s breaks %d promises: %s.", at, len(broken.figures), strings.Join(broken.names, ", ")),
			fmt.Sprintf("In figures: %s%s.", strings.Join(broken.figures, ", "), restsOn(broken.farthest))}
	case len(broken.figures) > 0:
		return []string{fmt.Sprintf("%s breaks %s%s.", at, broken.figures[0], restsOn(broken.farthest))}
	case len(unsure.figures) > 0:
		return []string{fmt.Sprintf("%s holds what is promised, but that is not sure of %s%s.", at, strings.Join(unsure.figures, ", "), restsOn(unsure.farthest))}
	case len(kept.figures) == len(p.Promised()):
		return []string{fmt.Sprintf("%s holds all that is promised: %s%s.", at, strings.Join(kept.figures, ", "), restsOn(kept.farthest))}
	case len(kept.figures) > 0:
		return []string{fmt.Sprintf("%s holds what is known of what is promised: %s%s.", at, strings.Join(kept.figures, ", "), restsOn(kept.farthest))}
	}
	return []string{at + ": nothing that is promised is known."}
}

// verdict gathers promises that fare alike.
type verdict struct {
	names, figures []string
	farthest       Estimate // the one that rests on least
}

func (v *verdict) add(name, figure string, e Estimate) {
	v.names, v.figures = append(v.names, words[name].name), append(v.figures, figure)
	v.farthest = worse(e, v.farthest)
}

// between writes an estimate with its bounds.
func between(name string, e Estimate) string {
	median, low, high := amount(name, e.Median, e.Basis), amount(name, e.Low, e.Basis), amount(name, e.High, e.Basis)
	if low == high {
		return median
	}
	return fmt.Sprintf("%s, between %s and %s", median, low, high)
}

func (s *SubjectAnswer) sayLargest(q Question) string {
	l, p := s.Largest, q.Promise
	who := s.Name
	if !s.Recommended.InUse {
		who += fmt.Sprintf(", with minSyncPeriod %s (%s),", period(s.Recommended.Policy.MinSyncPeriod), s.Recommended.Policy.Runner)
	}
	unit := q.Growth.Unit()
	limit := unit.count(l.Reach.Median, model.Extrapolated) // of a limit no more digits are worth anything
	size, each, further := limit, "", "that is as far as the model can be asked"
	switch unit {
	case InServices:
		size, each = l.Cluster.size(model.Extrapolated), fmt.Sprintf(" with %s endpoints each", digits(l.Cluster.Endpoints, l.Reach.Basis))
	case InNodes:
		further = "what a proxier does hardly depends on how many other nodes there are"
	case InChanges:
		further = "every change is simulated"
	}
	further = cmp.Or(l.End, further)
	switch {
	case l.Promise == "":
		return fmt.Sprintf("Of %s nothing that is promised is known: there is no limit to name.", s.Name)
	case l.Unbounded:
		return fmt.Sprintf("%s holds at least up to %s%s; it was not looked further, since %s.", who, size, restsOn(l.Reach), further)
	case l.Never && !l.Smaller:
		return fmt.Sprintf("%s breaks the promise of %s today, and in the smaller clusters that were looked at, too: %s.", who, words[l.Promise].name, l.Why)
	case l.Never:
		return fmt.Sprintf("%s breaks the promise of %s (%s) today already; it would hold up to %s%s. Why: %s.", who, words[l.Promise].name,
			promised(p, l.Promise), limit, restsOn(l.Reach), l.Why)
	}
	return fmt.Sprintf("%s can grow to about %s (between %s and %s)%s%s; then %s breaks %s first: %s.", who,
		limit, digits(l.Reach.Low, model.Extrapolated), digits(l.Reach.High, model.Extrapolated), each, restsOn(l.Reach), words[l.Promise].breaks, promised(p, l.Promise), l.Why)
}

// sayNext names the promise that breaks after the first one.
func (s *SubjectAnswer) sayNext(q Question) string {
	if s.Largest.Unbounded {
		return ""
	}
	for _, l := range s.RecommendedLimits {
		if l.Promise == s.Largest.Promise || l.Unbounded {
			continue
		}
		if l.Reach.Median == 0 {
			return fmt.Sprintf("%s (%s) breaks in all of these, too.", words[l.Promise].name, promised(q.Promise, l.Promise))
		}
		return fmt.Sprintf("The next to break is %s (%s), at about %s%s.", words[l.Promise].name, promised(q.Promise, l.Promise),
			q.Growth.Unit().count(l.Reach.Median, model.Extrapolated), restsOn(l.Reach))
	}
	return ""
}

func (s *SubjectAnswer) sayRecommended(q Question) string {
	r := s.Recommended
	latency, cpu := r.Outlook.Promised[ProgrammingP99], r.Outlook.Promised[CPU]
	if s.holdsNowhere(q.Promise) {
		return s.sayNowhere(q)
	}
	if r.Outlook.Changes == 0 {
		return fmt.Sprintf("Nothing changes in this cluster, so there is no minSyncPeriod to choose: keep it at %s (%s).", period(r.Policy.MinSyncPeriod), r.Policy.Runner)
	}
	gives := fmt.Sprintf("changes arrive within %s at the 99th percentile, for %s%s", amount(ProgrammingP99, latency.Median, latency.Basis),
		amount(CPU, cpu.Median, cpu.Basis), restsOn(worse(latency, cpu)))
	if r.InUse {
		return fmt.Sprintf("Keep minSyncPeriod at %s (%s): %s.", period(r.Policy.MinSyncPeriod), r.Policy.Runner, gives)
	}
	now := ""
	for _, other := range s.Frontier {
		if other.InUse {
			l, c := other.Outlook.Promised[ProgrammingP99], other.Outlook.Promised[CPU]
			now = fmt.Sprintf("; now, with %s (%s), it is %s for %s", period(other.Policy.MinSyncPeriod), other.Policy.Runner,
				amount(ProgrammingP99, l.Median, l.Basis), amount(CPU, c.Median, c.Basis))
		}
	}
	return fmt.Sprintf("Set minSyncPeriod to %s (%s): %s%s.", period(r.Policy.MinSyncPeriod), r.Policy.Runner, gives, now)
}

// holdsNowhere: with no setting latency and CPU are as promised, at the median.
func (s *SubjectAnswer) holdsNowhere(p Promise) bool {
	for _, name := range []string{ProgrammingP99, CPU} {
		if bound := p.Bound(name); bound > 0 && s.Recommended.Outlook.Promised[name].Median > bound {
			return true
		}
	}
	return false
}

func (s *SubjectAnswer) sayNowhere(q Question) string {
	p, r := q.Promise, s.Recommended
	latency, cpu := r.Outlook.Promised[ProgrammingP99], r.Outlook.Promised[CPU]
	kept := "latency as promised"
	switch {
	case p.ProgrammingP99 == 0:
		kept = "CPU as promised"
	case p.CPU > 0:
		kept = "both latency and CPU as promised"
	}
	where := fmt.Sprintf("At %s no minSyncPeriod that was tried keeps %s", q.Growth.Unit().count(r.Outlook.Reach, model.Measured), kept)
	if s.Furthest.Reach == 0 {
		return where + ", nor do all promises hold with any of them in a smaller cluster that was looked at."
	}
	return fmt.Sprintf("%s; %s (%s) goes furthest, but there changes take %s at the 99th percentile, for %s.", where, period(r.Policy.MinSyncPeriod),
		r.Policy.Runner, amount(ProgrammingP99, latency.Median, latency.Basis), amount(CPU, cpu.Median, cpu.Basis))
}

// sayFurthest names the setting that goes further than the recommended one, where it is worth a word.
func (s *SubjectAnswer) sayFurthest(q Question) string {
	f := s.Furthest
	if f.Reach == 0 || f.Policy == s.Recommended.Policy || f.Reach < 1.1*s.Largest.Reach.Median {
		return ""
	}
	more := ""
	if f.Unbounded {
		more = " and more"
	}
	return fmt.Sprintf("When it has grown so far, another setting goes further: with minSyncPeriod %s (%s) all promises hold up to about %s%s.",
		period(f.Policy.MinSyncPeriod), f.Policy.Runner, q.Growth.Unit().count(f.Reach, model.Extrapolated), more)
}

// paying is how many times as far a subject has to go to be worth a change.
const paying = 1.05

// sayChange names the subject that goes furthest, if it is another one. How sure that is depends on the intervals.
func (a *Answer) sayChange() string {
	if len(a.Subjects) < 2 {
		return ""
	}
	used := &a.Subjects[0]
	if used.Largest.Unbounded {
		return fmt.Sprintf("No reason to change was found: %s holds as far as was looked.", used.Name)
	}
	far := func(i int) float64 { return a.Subjects[i].Largest.Reach.Median }
	best := 0
	for i := range a.Subjects {
		if far(i) > far(best) {
			best = i
		}
	}
	if far(best) <= paying*far(0) {
		return fmt.Sprintf("None of the others (%d compared) holds further.", len(a.Subjects)-1)
	}
	pays := "Changing pays: "
	if a.Subjects[best].Largest.Reach.Low <= used.Largest.Reach.High {
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
			return "none that holds"
		}
		return "about " + u.count(v, model.Extrapolated)
	}
	return fmt.Sprintf("The answer depends most on %s: times %s it is %s, times %s %s.", inputWords[m.Input],
		digits(m.Lower, model.Extrapolated), about(m.AtLower, m.CappedLower), digits(m.Higher, model.Extrapolated), about(m.AtHigher, m.CappedHigher))
}

var inputWords = map[string]string{
	"churn": "the churn", "endpoints": "the endpoints of each Service", "nodes": "the number of nodes",
	"minSyncPeriod": "minSyncPeriod", "cost": "what a sync costs (within the interval of the model)",
}
