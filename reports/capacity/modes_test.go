package capacity_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"synclab/reports/capacity"
	"synclab/reports/capacity/capacitytest"
	"synclab/reports/model"
)

// Above 1,000 endpoints, only kube-proxy's mode nftables writes all rules again every hour.
func TestHourlyFullSyncs(t *testing.T) {
	q := capacitytest.Question()
	q.Today.Churn = capacity.Churn{}
	for name, want := range map[string][2]bool{legacy: {true, false}, own: {true, false}, nft: {true, true}} {
		for i, services := range []int{100, 101} {
			q.Today.Services = services
			if o := outlookOf(t, q, name); (o.SyncsPerSecond > 0) != want[i] {
				t.Errorf("%s, %d endpoints: %g syncs a second without changes", name, 10*services, o.SyncsPerSecond)
			}
		}
	}
}

// An answer names the modes that change between its clusters, and those that its calibration has not seen.
func TestModesAreNamed(t *testing.T) {
	const comments, without, both = "above 1,000 endpoints in all, the rules of endpoints have no comments", "the calibration has no cluster", "are on both sides"
	m := *capacitytest.Model()
	m.Subjects = slices.Clone(m.Subjects)
	i := slices.IndexFunc(m.Subjects, func(s *model.Subject) bool { return s.Name == own })
	small := *m.Subjects[i] // as if it had been measured in a small cluster, too
	small.Points = append(slices.Clone(small.Points), model.Point{Quantity: model.Total, Kind: model.Full, Services: 50, Endpoints: 10, N: 1, Value: 0.01})
	m.Subjects[i] = &small
	for _, c := range []struct {
		services  int
		endpoints float64
		of        string
		want      []string
		not       string
	}{
		{50, 10, legacy, []string{comments, without}, both},
		{50, 10, own, []string{comments, both}, without}, // the largest cluster is above
		{3000, 10, legacy, nil, "above"},
		{30000, 30, legacy, []string{"in a cluster of 30,000 Services with 30 endpoints each, a partial sync takes", "canary"}, "above 1,000"},
		{30000, 30, own, nil, "canary"},
		{3000, 1, nft, []string{"above 1 endpoint of each Service", without}, "comments"},
	} {
		q := capacitytest.Question()
		q.Today.Services, q.Today.Endpoints, q.Subjects, q.Growth, q.Length = c.services, c.endpoints, []string{c.of}, capacity.Growth{}, time.Minute
		a, err := capacity.Ask(t.Context(), &m, q, nil)
		if err != nil {
			t.Fatal(err)
		}
		said := strings.Join(a.Subjects[0].Remarks, "\n")
		if strings.Contains(said, c.not) {
			t.Errorf("%s, %d × %g: %q, with %q", c.of, c.services, c.endpoints, said, c.not)
		}
		for _, want := range c.want {
			if !strings.Contains(said, want) {
				t.Errorf("%s, %d × %g: %q; want %q", c.of, c.services, c.endpoints, said, want)
			}
		}
	}
}
