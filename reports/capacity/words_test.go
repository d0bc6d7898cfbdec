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

// at is a limit at so many Services.
func at(services float64, change func(l *capacity.Limit)) capacity.Limit {
	l := capacity.Limit{Promise: capacity.Memory, Why: "it holds much", Cluster: capacity.Cluster{Services: int(services), Endpoints: 10},
		Reach: capacity.Estimate{Median: services, Low: 0.9 * services, High: 1.1 * services, Basis: model.Interpolated, Beyond: 1}}
	if change != nil {
		change(&l)
	}
	return l
}

func unbounded(l *capacity.Limit) { l.Unbounded = true }
func never(l *capacity.Limit)     { l.Never = true }

// A comparison does not make a limit of where a search ended, nor of a subject that holds nowhere.
func TestComparisonWords(t *testing.T) {
	q := capacitytest.Question()
	for name, c := range map[string]struct {
		from, to capacity.Limit
		want     string
		ratio    float64
	}{
		"further":      {at(1000, nil), at(3000, nil), "b holds at 3 times the size of a; the promise first to break is memory: it holds much.", 3},
		"at least":     {at(1000, nil), at(3000, unbounded), "b holds at 3 times the size of a or more.", 3},
		"neither":      {at(1000, unbounded), at(4000, unbounded), "Of neither b nor a a limit was found: they hold up to 4,000 Services and more (not looked further), and to 1,000 Services and more", 0},
		"only the one": {at(1000, nil), at(0, never), "b holds all promises at no size that was looked at, a up to 1,000 Services.", 0},
		"only other":   {at(0, never), at(1000, nil), "b holds all promises up to 1,000 Services, a at no size that was looked at.", 0},
		"none":         {at(0, never), at(0, never), "b does not hold all promises at any size that was looked at either.", 0},
		"not known":    {at(1000, nil), capacity.Limit{}, "nothing that is promised is known", 0},
	} {
		got := capacity.Compare(&capacity.SubjectAnswer{Name: "a", Largest: c.from}, &capacity.SubjectAnswer{Name: "b", Largest: c.to}, q)
		if !strings.Contains(got.Words, c.want) || got.Ratio != c.ratio {
			t.Errorf("%s: ×%g, %s; want ×%g, %s", name, got.Ratio, got.Words, c.ratio, c.want)
		}
	}
}

// Changing is recommended where the other goes further by more than the intervals leave open, and not where the one in use
// has no limit that was found.
func TestChangeIsOnlyWorthWhatIsKnown(t *testing.T) {
	for name, c := range map[string]struct {
		used, other capacity.Limit
		want        string
	}{
		"clearly":       {at(1000, nil), at(3000, nil), "Changing pays: "},
		"overlapping":   {at(1000, nil), at(1150, nil), "Changing may pay, but the intervals of the two overlap: "},
		"as far":        {at(1000, nil), at(1030, nil), "None of the others (1 compared) holds further."},
		"no limit seen": {at(1000, unbounded), at(3000, unbounded), "No reason to change was found: a holds as far as was looked."},
	} {
		a := capacity.Answer{Question: capacitytest.Question(), Subjects: []capacity.SubjectAnswer{{Name: "a", Largest: c.used}, {Name: "b", Largest: c.other}}}
		a.Comparisons = []capacity.Comparison{capacity.Compare(&a.Subjects[0], &a.Subjects[1], a.Question)}
		if words := strings.Join(a.Say(), "\n"); !strings.Contains(words, c.want) {
			t.Errorf("%s: %s; want %s", name, words, c.want)
		}
	}
}

// A limit or a target beyond what was measured is called so before anything else; one that was measured is not.
func TestFirstSentenceSaysWhatIsNotKnown(t *testing.T) {
	say := func(e capacity.Estimate) string {
		l := at(1000, func(l *capacity.Limit) { l.Reach = e })
		a := capacity.Answer{Question: capacitytest.Question(), Subjects: []capacity.SubjectAnswer{{Name: "a", Largest: l}}}
		return a.Say()[0]
	}
	e := capacity.Estimate{Median: 1000, Low: 900, High: 1100, Basis: model.Extrapolated, Beyond: 3.4}
	if got := say(e); got != "The limit lies beyond what is known: it is extrapolated to 3.4 times what was measured." {
		t.Error(got)
	}
	e.Beyond = 7
	if got := say(e); !strings.HasSuffix(got, "to 7 times what was measured, further than predictions were tried (5 times).") {
		t.Error(got)
	}
	e.Changed = true
	if got := say(e); !strings.Contains(got, "as many changed Services in one sync as were measured") {
		t.Error(got)
	}
	for _, known := range []capacity.Estimate{{Median: 1000, Basis: model.Interpolated, Beyond: 1}, {Median: 1000, Basis: model.Extrapolated, Beyond: 3, Below: true}} {
		if got := say(known); strings.Contains(got, "beyond what is known") {
			t.Errorf("%+v: %s", known, got)
		}
	}
}

// Where several promises break, a sentence names them, and the next has the figures.
func TestFirstSentenceIsShort(t *testing.T) {
	q := capacitytest.Question()
	q.Promise = capacity.Promise{ProgrammingP99: time.Second, CPU: 0.5, Memory: 100 << 20}
	far := capacity.Estimate{Median: 2, Low: 1.5, High: 4, Basis: model.Extrapolated, Beyond: 3}
	small := capacity.Estimate{Median: 1, Low: 1, High: 1, Basis: model.Interpolated, Beyond: 1}
	target := capacity.Outlook{Promised: map[string]capacity.Estimate{capacity.ProgrammingP99: far, capacity.CPU: far, capacity.Memory: small}}
	a := capacity.Answer{Question: q, Target: &q.Today, Subjects: []capacity.SubjectAnswer{{Name: "a", Target: &target, Largest: at(100, nil)}}}
	words := a.Say()
	if !strings.Contains(words[0], "The target lies beyond what is known: it is extrapolated to 3 times") ||
		!strings.HasSuffix(words[1], "a breaks 2 promises: network programming latency (p99), CPU.") || !strings.Contains(words[2], "2 s, between 1.5 s and 4 s (promised 1 s)") {
		t.Errorf("%q", words)
	}
	delete(target.Promised, capacity.ProgrammingP99)
	target.Promised[capacity.CPU] = capacity.Estimate{Median: 0.1, Low: 0.1, High: 0.1, Basis: model.Interpolated, Beyond: 1}
	if words := a.Say(); !strings.Contains(words[0], "holds what is known of what is promised: ") {
		t.Errorf("latency is not known, but %q", words[0])
	}
}

// Of a cluster in which nothing changes, no latency is told, and no setting is changed.
func TestWordsWhereNothingChanges(t *testing.T) {
	q := capacitytest.Question()
	q.Subjects, q.Today.Churn, q.Policy = []string{own}, capacity.Churn{}, &capacity.Policy{Runner: runner.TokenBucket, MinSyncPeriod: 3 * time.Second}
	a, err := capacity.Ask(t.Context(), capacitytest.Model(), q, nil)
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Join(a.Words, "\n")
	if !a.Subjects[0].Recommended.InUse || !strings.Contains(words, "Nothing changes in this cluster, so there is no minSyncPeriod to choose: keep it at 3 s (token-bucket).") || strings.Contains(words, "arrive within") {
		t.Errorf("recommended %+v\n%s", a.Subjects[0].Recommended.Policy, words)
	}
}

// Where Services do not grow, what does is what a cluster can grow to, and what subjects are compared by. A search for how
// far ends where nobody could follow it.
func TestGrowthOfChurnAlone(t *testing.T) {
	q := capacitytest.Question()
	q.Growth, q.Promise = capacity.Growth{Churn: 4}, capacity.Promise{Memory: 1 << 40}
	l := limitOf(t, capacitytest.Model(), q, own, capacity.Memory)
	if rate := l.Cluster.Rate(); !l.Unbounded || rate < 500 || rate > 1000 {
		t.Errorf("looked up to %g changes a second: %+v", rate, l)
	}
}

// What is said of a limit is counted in what grows, with its bounds; of Services, as ever, with their endpoints.
func TestWordsCountWhatGrows(t *testing.T) {
	for _, c := range []struct {
		growth                   capacity.Growth
		grows, change, unbounded string
	}{
		{capacity.Growth{Services: 2, Nodes: 10}, "can grow to about 40 Services (between 36 and 44) with 10 endpoints each; then the memory breaks",
			"Changing pays: b holds at 3 times the size of a;", "holds at least up to 40 Services with 10 endpoints each; it was not looked further, since that is as far as the model can be asked."},
		{capacity.Growth{Endpoints: 4}, "can grow to about 40 endpoints of each Service (between 36 and 44); then the memory breaks",
			"Changing pays: b holds at 3 times as many endpoints of each Service as a;", "holds at least up to 40 endpoints of each Service; it was not looked further, since that is"},
		{capacity.Growth{Nodes: 10}, "can grow to about 40 nodes (between 36 and 44); then the memory breaks",
			"Changing pays: b holds at 3 times as many nodes as a;", "holds at least up to 40 nodes; it was not looked further, since what a proxier does"},
		{capacity.Growth{Churn: 10}, "can grow to about 40 changes a second (between 36 and 44); then the memory breaks",
			"Changing pays: b holds at 3 times as many changes a second as a;", "holds at least up to 40 changes a second; it was not looked further, since every change"},
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
