package capacity_test

import (
	"slices"
	"strings"
	"testing"

	"synclab/reports/capacity"
	"synclab/reports/capacity/capacitytest"
	"synclab/reports/model"
)

// drifting is the model of the tests, with a large uncertainty at sizes that were not measured.
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

// Far below the measured sizes, no bound exceeds that of the smallest measured size, and the estimate is marked as
// below.
func TestBelowTheSmallestNothingIsLarger(t *testing.T) {
	q := capacitytest.Question()
	at := func(services int, endpoints float64) capacity.Evaluation {
		q.Today.Services, q.Today.Endpoints, q.Today.Nodes = services, endpoints, 2
		return outlookBy(t, drifting(), q, legacy)
	}
	tiny, smallest := at(2, 1.5), at(250, 8)
	for _, name := range []string{capacity.Memory, capacity.Start, capacity.FirstPacketP99} {
		e, most := tiny.Quantities[name], smallest.Quantities[name]
		if e.High > 1.001*most.High || e.Median > 1.001*most.Median || e.Low > e.Median || !e.Below {
			t.Errorf("%s: %+v, at the smallest size %+v", name, e, most)
		}
	}
	if e := at(50_000, 10).Quantities[capacity.Memory]; e.Below || e.Beyond < 10 {
		t.Errorf("at ten times the largest size: %+v", e)
	}
}

// The words name the direction and the quantity of an extrapolation. They omit a factor of 1.
func TestWordsOfWhatIsBeyond(t *testing.T) {
	far := capacity.Estimate{Basis: model.Extrapolated, Beyond: 23}
	below, changed, just := far, far, far
	below.Below, changed.Changed, just.Beyond = true, true, 1.004
	for want, e := range map[string]capacity.Estimate{
		"": {Basis: model.Interpolated, Beyond: 1},
		" (extrapolated to 23 times the largest measured size: not reliable)":                           far,
		" (extrapolated to 23 times below the smallest measured size)":                                  below,
		" (extrapolated to 23 times the measured number of changed Services in one sync: not reliable)": changed,
		" (extrapolated, just beyond the measured sizes)":                                               just,
	} {
		if got := capacity.RestsOn(e); got != want {
			t.Errorf("%+v: %q, want %q", e, got, want)
		}
	}
}

// The recommended setting has no smaller limit than the one in use, at the median and at the lower bound.
func TestRecommendedHoldsNoLess(t *testing.T) {
	for _, c := range []capacity.Cluster{
		{Services: 2, Endpoints: 1.5, Nodes: 2, Churn: capacity.Churn{Endpoints: 5}},
		{Services: 2000, Endpoints: 5, Nodes: 1000, Churn: capacity.Churn{Endpoints: 10}},
		{Services: 250, Endpoints: 4, Nodes: 10, Churn: capacity.Churn{Endpoints: 10}},
	} {
		q := capacitytest.Question()
		q.Today, q.Growth, q.SLOs = c, capacity.Growth{}, capacity.SLOs{}.WithDefaults()
		q.SLOs.Memory = 8 << 30 // only the SLOs for latency and CPU are violated
		a, err := capacity.Ask(t.Context(), capacitytest.Model(), q, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range a.Subjects {
			for _, l := range s.Limits {
				now := min(l.Size.Median, s.Limits[0].Size.Median)
				if l.SLO == s.Limits[0].SLO && s.Largest.Size.Median < now {
					t.Errorf("%d Services, %s: the limit of %v is %g, of the setting in use %g", c.Services, s.Name, s.Recommended.Policy, s.Largest.Size.Median, now)
				}
			}
			low := slices.MinFunc(s.Limits, func(x, y capacity.Limit) int { return int(x.Size.Low - y.Size.Low) }).Size.Low
			if s.Largest.Size.Low < low-1 {
				t.Errorf("%d Services, %s: the lower bound of %v is %g, of the setting in use %g", c.Services, s.Name, s.Recommended.Policy, s.Largest.Size.Low, low)
			}
		}
	}
}

// The words name the churn if it ends a search. They name SLOs that today's cluster meets at the median only.
func TestWordsOfASearchThatChurnEnds(t *testing.T) {
	q := capacitytest.Question()
	q.Today, q.Growth, q.SLOs = capacity.Cluster{Services: 250, Endpoints: 4, Nodes: 2, Churn: capacity.Churn{Endpoints: 400}}, capacity.Growth{}, capacity.SLOs{Memory: 1 << 40}
	l := limitOf(t, capacitytest.Model(), q, own, capacity.Memory)
	if !l.Unbounded || !strings.Contains(l.End, "objects change a second there, and every change is simulated") {
		t.Errorf("%+v", l)
	}
	one := capacity.SubjectAnswer{Name: "a", Largest: at(400, unbounded)}
	one.Largest.End = l.End
	one.Today.Quantities = map[string]capacity.Estimate{capacity.Memory: {Median: 1 << 39, Low: 1 << 38, High: 1 << 41, Basis: model.Interpolated, Beyond: 1}}
	words := strings.Join((&capacity.Answer{Question: q, Subjects: []capacity.SubjectAnswer{one}}).Say(), "\n")
	for _, want := range []string{"the search ended there: " + l.End, "Today, it is uncertain whether these SLOs are met: memory "} {
		if !strings.Contains(words, want) {
			t.Errorf("%s; want %s", words, want)
		}
	}
}
