package capacity_test

import (
	"strings"
	"testing"
	"time"

	"synclab/proxier/runner"
	"synclab/reports/capacity"
	"synclab/reports/capacity/capacitytest"
	"synclab/reports/model"
)

// at is a limit at a number of Services.
func at(services float64, change func(l *capacity.Limit)) capacity.Limit {
	l := capacity.Limit{SLO: capacity.Memory, Why: "it uses much", Cluster: capacity.Cluster{Services: int(services), Endpoints: 10},
		Size: capacity.Estimate{Median: services, Low: 0.9 * services, High: 1.1 * services, Basis: model.Interpolated, Beyond: 1}}
	if change != nil {
		change(&l)
	}
	return l
}

func unbounded(l *capacity.Limit) { l.Unbounded = true }
func never(l *capacity.Limit)     { l.Never = true }

// A comparison does not treat the end of a search as a limit, nor a subject without any cluster as one with a limit.
func TestComparisonWords(t *testing.T) {
	q := capacitytest.Question()
	for name, c := range map[string]struct {
		from, to capacity.Limit
		want     string
		ratio    float64
	}{
		"further":      {at(1000, nil), at(3000, nil), "b meets all SLOs up to 3 times the size of a; the SLO that is violated first is memory: it uses much.", 3},
		"at least":     {at(1000, nil), at(3000, unbounded), "b meets all SLOs up to 3 times the size of a or more.", 3},
		"neither":      {at(1000, unbounded), at(4000, unbounded), "No limit was found for b and a: they meet all SLOs up to 4,000 Services or more (the search ended there), and up to 1,000 Services or more", 0},
		"only the one": {at(1000, nil), at(0, never), "b meets all SLOs at no evaluated size, a up to 1,000 Services.", 0},
		"only other":   {at(0, never), at(1000, nil), "b meets all SLOs up to 1,000 Services, a at no evaluated size.", 0},
		"none":         {at(0, never), at(0, never), "b does not meet all SLOs at any evaluated size either.", 0},
		"not known":    {at(1000, nil), capacity.Limit{}, "at least one has no measured quantity of an SLO", 0},
	} {
		got := capacity.Compare(&capacity.SubjectAnswer{Name: "a", Largest: c.from}, &capacity.SubjectAnswer{Name: "b", Largest: c.to}, q)
		if !strings.Contains(got.Words, c.want) || got.Ratio != c.ratio {
			t.Errorf("%s: ×%g, %s; want ×%g, %s", name, got.Ratio, got.Words, c.ratio, c.want)
		}
	}
}

// A change is recommended if the other subject reaches further and the intervals do not overlap. It is not recommended
// if no limit was found for the subject in use.
func TestChangeIsOnlyWorthWhatIsKnown(t *testing.T) {
	for name, c := range map[string]struct {
		used, other capacity.Limit
		want        string
	}{
		"clearly":       {at(1000, nil), at(3000, nil), "Changing pays: "},
		"overlapping":   {at(1000, nil), at(1150, nil), "Changing may pay, but the intervals of the two overlap: "},
		"as far":        {at(1000, nil), at(1030, nil), "No other subject (1 compared) reaches a larger cluster."},
		"no limit seen": {at(1000, unbounded), at(3000, unbounded), "No reason to change was found: a meets all SLOs up to the largest evaluated size."},
	} {
		a := capacity.Answer{Question: capacitytest.Question(), Subjects: []capacity.SubjectAnswer{{Name: "a", Largest: c.used}, {Name: "b", Largest: c.other}}}
		a.Comparisons = []capacity.Comparison{capacity.Compare(&a.Subjects[0], &a.Subjects[1], a.Question)}
		if words := strings.Join(a.Say(), "\n"); !strings.Contains(words, c.want) {
			t.Errorf("%s: %s; want %s", name, words, c.want)
		}
	}
}

// The first sentence says that a limit or a target lies beyond the measured sizes. It does not if the size was
// measured.
func TestFirstSentenceSaysWhatIsNotKnown(t *testing.T) {
	say := func(e capacity.Estimate) string {
		l := at(1000, func(l *capacity.Limit) { l.Size = e })
		a := capacity.Answer{Question: capacitytest.Question(), Subjects: []capacity.SubjectAnswer{{Name: "a", Largest: l}}}
		return a.Say()[0]
	}
	e := capacity.Estimate{Median: 1000, Low: 900, High: 1100, Basis: model.Extrapolated, Beyond: 3.4}
	if got := say(e); got != "The limit lies beyond the measured sizes: it is extrapolated to 3.4 times the largest measured size." {
		t.Error(got)
	}
	e.Beyond = 7
	if got := say(e); !strings.HasSuffix(got, "to 7 times the largest measured size, further than predictions were tested (5 times).") {
		t.Error(got)
	}
	e.Changed = true
	if got := say(e); !strings.Contains(got, "the measured number of changed Services in one sync") {
		t.Error(got)
	}
	for _, known := range []capacity.Estimate{{Median: 1000, Basis: model.Interpolated, Beyond: 1}, {Median: 1000, Basis: model.Extrapolated, Beyond: 3, Below: true}} {
		if got := say(known); strings.Contains(got, "beyond the measured sizes") {
			t.Errorf("%+v: %s", known, got)
		}
	}
}

// If several SLOs are violated, one sentence names them, and the next has the figures.
func TestFirstSentenceIsShort(t *testing.T) {
	q := capacitytest.Question()
	q.SLOs = capacity.SLOs{ProgrammingP99: time.Second, CPU: 0.5, Memory: 100 << 20}
	far := capacity.Estimate{Median: 2, Low: 1.5, High: 4, Basis: model.Extrapolated, Beyond: 3}
	small := capacity.Estimate{Median: 1, Low: 1, High: 1, Basis: model.Interpolated, Beyond: 1}
	target := capacity.Evaluation{Quantities: map[string]capacity.Estimate{capacity.ProgrammingP99: far, capacity.CPU: far, capacity.Memory: small}}
	a := capacity.Answer{Question: q, Target: &q.Today, Subjects: []capacity.SubjectAnswer{{Name: "a", Target: &target, Largest: at(100, nil)}}}
	words := a.Say()
	if !strings.Contains(words[0], "The target lies beyond the measured sizes: it is extrapolated to 3 times") ||
		!strings.HasSuffix(words[1], "a violates 2 SLOs: network programming latency (p99), CPU.") || !strings.Contains(words[2], "2 s, between 1.5 s and 4 s (SLO 1 s)") {
		t.Errorf("%q", words)
	}
	delete(target.Quantities, capacity.ProgrammingP99)
	target.Quantities[capacity.CPU] = capacity.Estimate{Median: 0.1, Low: 0.1, High: 0.1, Basis: model.Interpolated, Beyond: 1}
	if words := a.Say(); !strings.Contains(words[0], "meets the SLOs with a measured quantity: ") {
		t.Errorf("latency is unknown, but %q", words[0])
	}
}

// For a cluster without changes, the words have no latency and no change of a setting.
func TestWordsWhereNothingChanges(t *testing.T) {
	q := capacitytest.Question()
	q.Subjects, q.Today.Churn, q.Policy = []string{own}, capacity.Churn{}, &capacity.Policy{Runner: runner.TokenBucket, MinSyncPeriod: 3 * time.Second}
	a, err := capacity.Ask(t.Context(), capacitytest.Model(), q, nil)
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Join(a.Words, "\n")
	if !a.Subjects[0].Recommended.InUse || !strings.Contains(words, "Nothing changes in this cluster, so minSyncPeriod has no effect: keep it at 3 s (token-bucket).") || strings.Contains(words, "the 99th percentile of network programming latency is") {
		t.Errorf("recommended %+v\n%s", a.Subjects[0].Recommended.Policy, words)
	}
}

// With growth of churn alone, the limit is a number of changes per second. The search ends at a rate that can still be
// simulated.
func TestGrowthOfChurnAlone(t *testing.T) {
	q := capacitytest.Question()
	q.Growth, q.SLOs = capacity.Growth{Churn: 4}, capacity.SLOs{Memory: 1 << 40}
	l := limitOf(t, capacitytest.Model(), q, own, capacity.Memory)
	if rate := l.Cluster.Rate(); !l.Unbounded || rate < 500 || rate > 1000 {
		t.Errorf("searched up to %g changes a second: %+v", rate, l)
	}
}

// The words give limits and bounds in the unit of growth. For Services, they add the endpoints.
func TestWordsCountWhatGrows(t *testing.T) {
	for _, c := range []struct {
		growth                   capacity.Growth
		grows, change, unbounded string
	}{
		{capacity.Growth{Services: 2, Nodes: 10}, "can grow to about 40 Services (between 36 and 44) with 10 endpoints each; then the memory use violates its SLO",
			"Changing pays: b meets all SLOs up to 3 times the size of a;", "meets all SLOs up to at least 40 Services with 10 endpoints each; the search ended there: this is the end of the cost model's range."},
		{capacity.Growth{Endpoints: 4}, "can grow to about 40 endpoints of each Service (between 36 and 44); then the memory use violates its SLO",
			"Changing pays: b meets all SLOs up to 3 times as many endpoints of each Service as a;", "meets all SLOs up to at least 40 endpoints of each Service; the search ended there: this is"},
		{capacity.Growth{Nodes: 10}, "can grow to about 40 nodes (between 36 and 44); then the memory use violates its SLO",
			"Changing pays: b meets all SLOs up to 3 times as many nodes as a;", "meets all SLOs up to at least 40 nodes; the search ended there: the work of a proxier"},
		{capacity.Growth{Churn: 10}, "can grow to about 40 changes a second (between 36 and 44); then the memory use violates its SLO",
			"Changing pays: b meets all SLOs up to 3 times as many changes a second as a;", "meets all SLOs up to at least 40 changes a second; the search ended there: every change"},
	} {
		q := capacitytest.Question()
		q.Growth = c.growth
		a := capacity.Answer{Question: q, Subjects: []capacity.SubjectAnswer{{Name: "a", Largest: at(40, nil)}, {Name: "b", Largest: at(120, nil)}}}
		a.Comparisons = []capacity.Comparison{capacity.Compare(&a.Subjects[0], &a.Subjects[1], q)}
		words := strings.Join(a.Say(), "\n")
		a.Subjects[0].Largest.Unbounded = true
		if words += strings.Join(a.Say(), "\n"); !strings.Contains(words, c.grows) || !strings.Contains(words, c.change) || !strings.Contains(words, c.unbounded) {
			t.Errorf("%+v: %s", c.growth, words)
		}
	}
}
