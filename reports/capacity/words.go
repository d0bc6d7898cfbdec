package capacity

import (
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
	if a.Target != nil {
		out = append(out, used.sayTarget(*a.Target, p))
	}
	out = append(out, used.sayLargest(a.Question.Today, p))
	if s := used.sayNext(p); s != "" {
		out = append(out, s)
	}
	out = append(out, used.sayRecommended(p))
	if s := used.sayFurthest(); s != "" {
		out = append(out, s)
	}
	if used.MemoryLimit > 0 {
		out = append(out, fmt.Sprintf("Give its pod a memory limit of %s: the upper bound for %s, and a quarter more.", amount(Memory, float64(used.MemoryLimit), model.Measured), a.planned().size(model.Measured)))
	}
	if s := a.sayChange(); s != "" {
		out = append(out, s)
	}
	if s := used.saySensitivity(); s != "" {
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

// planned is the cluster that settings are for.
func (a *Answer) planned() Cluster {
	if a.Target != nil {
		return *a.Target
	}
	return a.Question.Today
}

// size of a cluster in words.
func (c Cluster) size(b model.Basis) string {
	return fmt.Sprintf("%s Service%s with %s endpoints each", digits(float64(c.Services), b), plural(c.Services), digits(c.Endpoints, b))
}

// rests says what a number rests on, where that has to be said.
func restsOn(e Estimate) string {
	if e.Basis != model.Extrapolated {
		return ""
	}
	if e.Beyond > mostBeyond {
		return fmt.Sprintf(" (extrapolated to %s times what was measured: not to be trusted)", digits(e.Beyond, model.Extrapolated))
	}
	return fmt.Sprintf(" (extrapolated to %s times what was measured)", digits(e.Beyond, model.Extrapolated))
}

func (s *SubjectAnswer) sayTarget(target Cluster, p Promise) string {
	var broken, unsure, kept []string
	var farthest Estimate
	for _, name := range p.Promised() {
		e, known := s.Target.Promised[name]
		if !known {
			continue
		}
		farthest = worse(e, farthest)
		one := fmt.Sprintf("%s %s (promised %s)", words[name].name, between(name, e), promised(p, name))
		switch {
		case e.Median > p.Bound(name):
			broken = append(broken, one)
		case e.High > p.Bound(name):
			unsure = append(unsure, one)
		default:
			kept = append(kept, one)
		}
	}
	at := fmt.Sprintf("At the target, %s, %s", target.size(model.Measured), s.Name)
	switch {
	case len(broken) > 0:
		return fmt.Sprintf("%s breaks %s%s.", at, strings.Join(broken, ", "), restsOn(farthest))
	case len(unsure) > 0:
		return fmt.Sprintf("%s holds what is promised, but that is not sure of %s%s.", at, strings.Join(unsure, ", "), restsOn(farthest))
	case len(kept) > 0:
		return fmt.Sprintf("%s holds all that is promised: %s%s.", at, strings.Join(kept, ", "), restsOn(farthest))
	}
	return at + ": nothing that is promised is known."
}

// between writes an estimate with its bounds.
func between(name string, e Estimate) string {
	median, low, high := amount(name, e.Median, e.Basis), amount(name, e.Low, e.Basis), amount(name, e.High, e.Basis)
	if low == high {
		return median
	}
	return fmt.Sprintf("%s, between %s and %s", median, low, high)
}

func (s *SubjectAnswer) sayLargest(today Cluster, p Promise) string {
	l := s.Largest
	switch {
	case l.Promise == "":
		return fmt.Sprintf("Of %s nothing that is promised is known: there is no limit to name.", s.Name)
	case l.Unbounded:
		return fmt.Sprintf("%s holds at least up to %s%s; it was not looked further, since that is as far as the model can be asked.", s.Name, l.Cluster.size(l.Services.Basis), restsOn(l.Services))
	case l.Never && !l.Smaller:
		return fmt.Sprintf("%s breaks the promise of %s today, and in smaller clusters, too: %s.", s.Name, words[l.Promise].name, l.Why)
	case l.Never:
		return fmt.Sprintf("%s breaks the promise of %s (%s) today already; it would hold up to %s Services%s. Why: %s.", s.Name, words[l.Promise].name,
			promised(p, l.Promise), digits(l.Services.Median, l.Services.Basis), restsOn(l.Services), l.Why)
	}
	return fmt.Sprintf("%s can grow to about %s Services (between %s and %s) with %s endpoints each%s; then %s breaks %s first: %s.", s.Name,
		digits(l.Services.Median, l.Services.Basis), digits(l.Services.Low, model.Extrapolated), digits(l.Services.High, model.Extrapolated),
		digits(l.Cluster.Endpoints, l.Services.Basis), restsOn(l.Services), words[l.Promise].breaks, promised(p, l.Promise), l.Why)
}

// sayNext names the promise that breaks after the first one.
func (s *SubjectAnswer) sayNext(p Promise) string {
	if s.Largest.Unbounded {
		return ""
	}
	for _, l := range s.RecommendedLimits {
		if l.Promise == s.Largest.Promise || l.Unbounded {
			continue
		}
		return fmt.Sprintf("The next to break is %s (%s), at about %s Services%s.", words[l.Promise].name, promised(p, l.Promise),
			digits(l.Services.Median, l.Services.Basis), restsOn(l.Services))
	}
	return ""
}

func (s *SubjectAnswer) sayRecommended(p Promise) string {
	r := s.Recommended
	latency, cpu := r.Outlook.Promised[ProgrammingP99], r.Outlook.Promised[CPU]
	if s.holdsNowhere(p) {
		return s.sayNowhere()
	}
	gives := fmt.Sprintf("changes arrive within %s at the 99th percentile, for %s", amount(ProgrammingP99, latency.Median, latency.Basis), amount(CPU, cpu.Median, cpu.Basis))
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

func (s *SubjectAnswer) sayNowhere() string {
	r := s.Recommended
	latency, cpu := r.Outlook.Promised[ProgrammingP99], r.Outlook.Promised[CPU]
	where := fmt.Sprintf("At %s Services no minSyncPeriod keeps both latency and CPU as promised", digits(float64(r.Outlook.Cluster.Services), model.Measured))
	if s.Furthest.Services == 0 {
		return where + ", nor do all promises hold with any in a smaller cluster."
	}
	return fmt.Sprintf("%s; %s (%s) goes furthest, but there changes take %s at the 99th percentile, for %s.", where, period(r.Policy.MinSyncPeriod),
		r.Policy.Runner, amount(ProgrammingP99, latency.Median, latency.Basis), amount(CPU, cpu.Median, cpu.Basis))
}

// sayFurthest names the setting that goes further than the recommended one, where it is worth a word.
func (s *SubjectAnswer) sayFurthest() string {
	f := s.Furthest
	if f.Policy == s.Recommended.Policy || f.Services < 1.1*s.Largest.Services.Median {
		return ""
	}
	more := ""
	if f.Unbounded {
		more = " and more"
	}
	return fmt.Sprintf("When it has grown so far, another setting goes further: with minSyncPeriod %s (%s) all promises hold up to about %s Services%s.",
		period(f.Policy.MinSyncPeriod), f.Policy.Runner, digits(f.Services, model.Extrapolated), more)
}

// sayChange names the subject that goes furthest, if it is another one.
func (a *Answer) sayChange() string {
	if len(a.Subjects) < 2 {
		return ""
	}
	best := 0
	for i := range a.Subjects {
		if a.Subjects[i].Largest.Services.Median > a.Subjects[best].Largest.Services.Median {
			best = i
		}
	}
	if best == 0 {
		return fmt.Sprintf("None of the others (%d compared) holds further.", len(a.Subjects)-1)
	}
	for _, c := range a.Comparisons {
		if c.To == a.Subjects[best].Name {
			return "Changing pays: " + c.Words
		}
	}
	return ""
}

func (s *SubjectAnswer) saySensitivity() string {
	if len(s.Sensitivity) == 0 || s.Sensitivity[0].swing() < 0.02 {
		return ""
	}
	m := s.Sensitivity[0]
	return fmt.Sprintf("The answer depends most on %s: times %s it is about %s Services, times %s about %s.", inputWords[m.Input],
		digits(m.Lower, model.Extrapolated), digits(m.AtLower, model.Extrapolated), digits(m.Higher, model.Extrapolated), digits(m.AtHigher, model.Extrapolated))
}

var inputWords = map[string]string{
	"churn": "the churn", "endpoints": "the endpoints of each Service", "nodes": "the number of nodes",
	"minSyncPeriod": "minSyncPeriod", "cost": "what a sync costs (within the interval of the model)",
}
