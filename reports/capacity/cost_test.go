package capacity_test

import (
	"math"
	"slices"
	"testing"

	"synclab/reports/capacity"
	"synclab/reports/capacity/capacitytest"
	"synclab/reports/model"
)

// If CPU time was measured for single changes only, syncs of many changes have the same CPU share, not the same CPU
// time. The CPU estimate is then less certain than that of the latency.
func TestCPUOfMoreChangesThanItIsKnownOf(t *testing.T) {
	whole, err := capacitytest.Model().Subject("synclab/nftables")
	if err != nil {
		t.Fatal(err)
	}
	s := *whole
	s.Terms = slices.Clone(whole.Terms)
	for i := range s.Terms {
		if term := &s.Terms[i]; term.Quantity == model.CPU && term.Kind == model.Partial {
			term.Form, term.Params, term.Draws, term.Alternatives = model.Form{State: "const"}, []float64{math.Log(0.004)}, nil, nil
			term.Largest.Changed, term.Largest.ChangedE = 1, term.Largest.Each
		}
	}
	c := capacitytest.Question().Today
	shares, err := capacity.CPUShares(&s, c, 5)
	if err != nil {
		t.Fatal(err)
	}
	for i, share := range shares {
		if share != shares[0] || share == 0 {
			t.Errorf("syncs of %d Services: %g CPUs, of one %g", 1<<i, share, shares[0])
		}
	}

	q := capacitytest.Question()
	q.Today.Churn.Endpoints = 40
	m := *capacitytest.Model()
	m.Subjects = []*model.Subject{&s}
	a, err := capacity.Asker(t.Context(), &m, q, s.Name)
	if err != nil {
		t.Fatal(err)
	}
	o, err := a.Outlook(0)
	if err != nil {
		t.Fatal(err)
	}
	if cpu, latency := o.Quantities[capacity.CPU], o.Quantities[capacity.ProgrammingP99]; cpu.Basis != model.Extrapolated || cpu.Beyond <= latency.Beyond {
		t.Errorf("%d Services together: CPU is %s ×%g, latency %s ×%g", o.Together, cpu.Basis, cpu.Beyond, latency.Basis, latency.Beyond)
	}
}

// Extrapolated durations and CPU times may contradict each other. No sync keeps more CPUs busy than the machine has.
func TestCPUsOfTheMachine(t *testing.T) {
	whole, err := capacitytest.Model().Subject("synclab/nftables")
	if err != nil {
		t.Fatal(err)
	}
	s := *whole
	s.Terms = slices.Clone(whole.Terms)
	for i := range s.Terms {
		if term := &s.Terms[i]; term.Quantity == model.CPU && term.Kind == model.Partial {
			term.Form, term.Params, term.Draws, term.Alternatives = model.Form{State: "const"}, []float64{math.Log(1000)}, nil, nil // s
		}
	}
	for cpus, want := range map[int]bool{0: false, 2: true} {
		shares, err := capacity.Prepared(&s, capacitytest.Question().Today, cpus)
		if err != nil {
			t.Fatal(err)
		}
		if most := slices.Max(shares[model.Partial]); (most <= 2) != want {
			t.Errorf("a machine of %d CPUs (0: unknown): a sync uses %g", cpus, most)
		}
	}
}
