package capacity_test

import (
	"slices"
	"strings"
	"testing"

	"synclab/reports/capacity"
	"synclab/reports/capacity/capacitytest"
	"synclab/reports/model"
)

// drifting is the model of the tests as if nothing were known of sizes that were not measured.
func drifting() *model.Model {
	m := *capacitytest.Model()
	m.Subjects = slices.Clone(m.Subjects)
	for i, s := range m.Subjects {
		one := *s
		one.Terms = slices.Clone(s.Terms)
		for j := range one.Terms {
			one.Terms[j].Drift = 0.4
		}
		m.Subjects[i] = &one
	}
	return &m
}

// A cluster far below what was measured has no bound above that of the smallest one that was, and is said to be below.
func TestBelowTheSmallestNothingIsLarger(t *testing.T) {
	q := capacitytest.Question()
	at := func(services int, endpoints float64) capacity.Outlook {
		q.Today.Services, q.Today.Endpoints, q.Today.Nodes = services, endpoints, 2
		return outlookBy(t, drifting(), q, legacy)
	}
	tiny, smallest := at(2, 1.5), at(250, 8)
	for _, name := range []string{capacity.Memory, capacity.Start, capacity.FirstPacketP99} {
		e, most := tiny.Promised[name], smallest.Promised[name]
		if e.High > 1.001*most.High || e.Median > 1.001*most.Median || e.Low > e.Median || !e.Below {
			t.Errorf("%s: %+v, at the smallest size %+v", name, e, most)
		}
	}
	if e := at(50_000, 10).Promised[capacity.Memory]; e.Below || e.Beyond < 10 {
		t.Errorf("at ten times the largest size: %+v", e)
	}
}

// Which way, and of what, a number is beyond what was measured is said; not that it is once as far.
func TestWordsOfWhatIsBeyond(t *testing.T) {
	far := capacity.Estimate{Basis: model.Extrapolated, Beyond: 23}
	below, changed, just := far, far, far
	below.Below, changed.Changed, just.Beyond = true, true, 1.004
	for want, e := range map[string]capacity.Estimate{
		"": {Basis: model.Interpolated, Beyond: 1},
		" (extrapolated to 23 times what was measured: not to be trusted)":                                     far,
		" (extrapolated to 23 times below the smallest size that was measured)":                                below,
		" (extrapolated to 23 times as many changed Services in one sync as were measured: not to be trusted)": changed,
		" (extrapolated, just beyond what was measured)":                                                       just,
	} {
		if got := capacity.RestsOn(e); got != want {
			t.Errorf("%+v: %q, want %q", e, got, want)
		}
	}
}

// A setting is not recommended that holds less than the one in use, at the median or for sure.
func TestRecommendedHoldsNoLess(t *testing.T) {
	for _, c := range []capacity.Cluster{
		{Services: 2, Endpoints: 1.5, Nodes: 2, Churn: capacity.Churn{Endpoints: 5}},
		{Services: 2000, Endpoints: 5, Nodes: 1000, Churn: capacity.Churn{Endpoints: 10}},
		{Services: 250, Endpoints: 4, Nodes: 10, Churn: capacity.Churn{Endpoints: 10}},
	} {
		q := capacitytest.Question()
		q.Today, q.Growth, q.Promise = c, capacity.Growth{}, capacity.Promise{}.WithDefaults()
		q.Promise.Memory = 8 << 30 // latency and CPU are what breaks
		a, err := capacity.Ask(t.Context(), capacitytest.Model(), q, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range a.Subjects {
			for _, l := range s.Limits {
				now := min(l.Reach.Median, s.Limits[0].Reach.Median)
				if l.Promise == s.Limits[0].Promise && s.Largest.Reach.Median < now {
					t.Errorf("%d Services, %s: %v holds up to %g, that in use up to %g", c.Services, s.Name, s.Recommended.Policy, s.Largest.Reach.Median, now)
				}
			}
			low := slices.MinFunc(s.Limits, func(x, y capacity.Limit) int { return int(x.Reach.Low - y.Reach.Low) }).Reach.Low
			if s.Largest.Reach.Low < low-1 {
				t.Errorf("%d Services, %s: %v holds up to %g for sure, that in use up to %g", c.Services, s.Name, s.Recommended.Policy, s.Largest.Reach.Low, low)
			}
		}
	}
}

// Where the churn ends a search, that is what is said; and what is not sure today is told beside what holds by the median.
func TestWordsOfASearchThatChurnEnds(t *testing.T) {
	q := capacitytest.Question()
	q.Today, q.Growth, q.Promise = capacity.Cluster{Services: 250, Endpoints: 4, Nodes: 2, Churn: capacity.Churn{Endpoints: 400}}, capacity.Growth{}, capacity.Promise{Memory: 1 << 40}
	l := limitOf(t, capacitytest.Model(), q, own, capacity.Memory)
	if !l.Unbounded || !strings.Contains(l.End, "objects change a second, and every change is simulated") {
		t.Errorf("%+v", l)
	}
	one := capacity.SubjectAnswer{Name: "a", Largest: at(400, unbounded)}
	one.Largest.End = l.End
	one.Today.Promised = map[string]capacity.Estimate{capacity.Memory: {Median: 1 << 39, Low: 1 << 38, High: 1 << 41, Basis: model.Interpolated, Beyond: 1}}
	words := strings.Join((&capacity.Answer{Question: q, Subjects: []capacity.SubjectAnswer{one}}).Say(), "\n")
	for _, want := range []string{"it was not looked further, since " + l.End, "Today that is not sure of memory "} {
		if !strings.Contains(words, want) {
			t.Errorf("%s; want %s", words, want)
		}
	}
}
