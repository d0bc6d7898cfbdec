package capacity_test

import (
	"math"
	"testing"
	"time"

	"synclab/reports/capacity"
	"synclab/sim/simulator"
)

// collect returns all events that are due before until, and checks their order.
func collect(t *testing.T, s simulator.Source, until time.Duration) []simulator.Event {
	t.Helper()
	var out []simulator.Event
	for {
		e, ok := s.Next()
		if !ok || e.Due >= until {
			return out
		}
		if len(out) > 0 && e.Due < out[len(out)-1].Due {
			t.Fatalf("event %d is due at %v, its predecessor at %v", len(out), e.Due, out[len(out)-1].Due)
		}
		out = append(out, e)
	}
}

// The number of events follows the rates. No event is early, and each is of an existing Service.
func TestEventsComeAtTheirRates(t *testing.T) {
	const from = time.Hour
	for name, churn := range map[string]capacity.Churn{
		"endpoints": {Endpoints: 5},
		"services":  {Services: 2},
		"swing":     {Endpoints: 5, Swing: 0.8},
		"rollouts":  {Rollouts: 360},
		"losses":    {NodeLosses: 480},
		"all":       {Endpoints: 1, Services: 0.5, Rollouts: 120, NodeLosses: 100, Swing: 0.2},
	} {
		c := capacity.Cluster{Services: 500, Endpoints: 10, Nodes: 50, Churn: churn}
		length := 4 * time.Hour
		source, err := c.Events(3, from, length)
		if err != nil {
			t.Fatal(err)
		}
		events := collect(t, source, from+length+time.Hour/2)
		inside := 0
		for _, e := range events {
			if e.Due < from || e.Service < 0 || int(e.Service) >= c.Services {
				t.Fatalf("%s: %+v", name, e)
			}
			if e.Due < from+length || churn.Rollouts > 0 || churn.NodeLosses > 0 { // rollouts and node losses may end after the span
				inside++
			}
		}
		if churn.Endpoints+churn.Services > 0 && (churn.Rollouts > 0 || churn.NodeLosses > 0) {
			continue // events after the span may belong to rollouts and node losses within it
		}
		if want := c.Rate() * length.Seconds(); math.Abs(float64(inside)/want-1) > 0.02 {
			t.Errorf("%s: %d events, want about %.0f", name, inside, want)
		}
	}
}

// A trace repeats with all its events, each time for the next Services, and faster as the cluster grows.
func TestTraceIsRepeated(t *testing.T) {
	trace := []simulator.Event{{Due: 10 * time.Second, Service: 0, Weight: 1}, {Due: 12 * time.Second, Service: 1, Weight: 2}, {Due: 20 * time.Second, Service: 0, Weight: 1}}
	c := capacity.Cluster{Services: 5, Endpoints: 2, Nodes: 1, Churn: capacity.Churn{Trace: trace}}
	source, err := c.Events(1, 0, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	events := collect(t, source, 30*time.Second)
	want := []simulator.Event{
		{Due: 0, Service: 0, Weight: 1}, {Due: 2 * time.Second, Service: 1, Weight: 2}, {Due: 10 * time.Second, Service: 0, Weight: 1},
		{Due: 15 * time.Second, Service: 2, Weight: 1}, {Due: 17 * time.Second, Service: 3, Weight: 2}, {Due: 25 * time.Second, Service: 2, Weight: 1},
	}
	if len(events) != len(want) {
		t.Fatalf("%d events, want %d: %+v", len(events), len(want), events)
	}
	for i := range want {
		if events[i] != want[i] {
			t.Errorf("event %d: %+v, want %+v", i, events[i], want[i])
		}
	}
	twice := c.At(capacity.Growth{Services: 2}, 1)
	if twice.Rate() != 2*c.Rate() {
		t.Errorf("twice the Services: %g events a second, was %g", twice.Rate(), c.Rate())
	}
}

func TestClusterGrows(t *testing.T) {
	c := capacity.Cluster{Services: 1000, Endpoints: 10, Nodes: 100, Churn: capacity.Churn{Endpoints: 8, Services: 1, Rollouts: 6, NodeLosses: 2}}
	for _, test := range []struct {
		growth capacity.Growth
		scale  float64
		want   capacity.Cluster
	}{
		{capacity.Growth{Services: 2, Endpoints: 3, Nodes: 4}, 1, capacity.Cluster{Services: 2000, Endpoints: 30, Nodes: 400,
			Churn: capacity.Churn{Endpoints: 48, Services: 2, Rollouts: 12, NodeLosses: 8}}},
		{capacity.Growth{Services: 2}, 2, capacity.Cluster{Services: 4000, Endpoints: 10, Nodes: 100,
			Churn: capacity.Churn{Endpoints: 32, Services: 4, Rollouts: 24, NodeLosses: 2}}},
		{capacity.Growth{Services: 2, Churn: 5}, 1, capacity.Cluster{Services: 2000, Endpoints: 10, Nodes: 100,
			Churn: capacity.Churn{Endpoints: 40, Services: 5, Rollouts: 30, NodeLosses: 2}}},
		{capacity.Growth{}, 1, capacity.Cluster{Services: 2000, Endpoints: 10, Nodes: 100,
			Churn: capacity.Churn{Endpoints: 16, Services: 2, Rollouts: 12, NodeLosses: 2}}},
		{capacity.Growth{Services: 2}, -1, capacity.Cluster{Services: 500, Endpoints: 10, Nodes: 100,
			Churn: capacity.Churn{Endpoints: 4, Services: 0.5, Rollouts: 3, NodeLosses: 2}}},
	} {
		got := c.At(test.growth, test.scale)
		if got.Services != test.want.Services || got.Endpoints != test.want.Endpoints || got.Nodes != test.want.Nodes || got.Rate() != test.want.Rate() {
			t.Errorf("%+v at %g: %+v, want %+v", test.growth, test.scale, got, test.want)
		}
	}
}
