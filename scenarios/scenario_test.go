package scenarios

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const smallest = `
name: x
shape: {services: 7}
steps:
  - create:
  - churn: {rate: 2, events: 10}
  - rollout:
  - scale: {to: 0}
  - nodeLoss:
  - restart:
  - fault: flush
  - fault: lock-held
  - fault: restore-fails
  - probe: traversal
  - settle:
`

// smallScenario loads smallest with overrides.
func smallScenario(t *testing.T, n Sizes, sets ...string) *Scenario {
	t.Helper()
	s, err := Parse("x.yaml", []byte(smallest), sets, n)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDefaults(t *testing.T) {
	want := &Scenario{
		Name: "x",
		Shape: Shape{
			Services: 7, Namespaces: 10, Nodes: 100, Zones: 3, Ports: 1,
			Endpoints: Endpoints{Distribution: "fixed", Count: 10},
			Families:  []string{"IPv4"}, ServiceCIDRs: []string{"10.96.0.0/12"}, PodCIDRs: []string{"10.128.0.0/9"},
		},
		Steps: []Step{
			{Create: &Create{}},
			{Churn: &Churn{Rate: 2, Events: 10, Kind: "endpoints", Arrivals: "uniform"}},
			{Rollout: &Rollout{Services: 1, Surge: 0.25, Interval: time.Second}},
			{Scale: &Scale{To: 0, Rate: 100}},
			{NodeLoss: &NodeLoss{Nodes: 1}},
			{Restart: &Restart{}},
			{Fault: &Fault{Kind: "flush", Table: "nat"}},
			{Fault: &Fault{Kind: "lock-held", For: 6 * time.Second}},
			{Fault: &Fault{Kind: "restore-fails", Times: 1}},
			{Probe: &Probe{Kind: "traversal", Positions: 11, Samples: 500, Method: "sendto"}},
			{Settle: &Settle{Timeout: 10 * time.Minute}},
		},
	}
	got := smallScenario(t, Sizes{})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	kinds := make([]string, len(got.Steps))
	for i, st := range got.Steps {
		kinds[i] = st.Kind()
	}
	if got := strings.Join(kinds, " "); got != "create churn rollout scale nodeLoss restart fault fault fault probe settle" {
		t.Errorf("kinds: %s", got)
	}
	if kind := (Step{Churn: &Churn{}, Settle: &Settle{}}).Kind(); kind != "" {
		t.Errorf("two kinds: %q, want none", kind)
	}
}

func TestOverrides(t *testing.T) {
	for _, test := range []struct {
		sets []string
		n    Sizes
		got  func(*Scenario) any
		want any
	}{
		{sets: []string{"shape.services=5000"}, got: func(s *Scenario) any { return s.Shape.Services }, want: 5000},
		{sets: []string{"shape.endpoints.count=3"}, got: func(s *Scenario) any { return s.Shape.Endpoints.Count }, want: 3},
		{sets: []string{"proxy.minSyncPeriod=2s"}, got: func(s *Scenario) any { return s.Proxy.MinSyncPeriod }, want: 2 * time.Second},
		{sets: []string{"steps.1.churn.rate=50"}, got: func(s *Scenario) any { return s.Steps[1].Churn.Rate }, want: 50.0},
		{sets: []string{"steps.churn.events=5"}, got: func(s *Scenario) any { return s.Steps[1].Churn.Events }, want: 5},
		{sets: []string{"steps.probe.samples=9"}, got: func(s *Scenario) any { return *s.Steps[9].Probe }, want: Probe{Kind: "traversal", Positions: 11, Samples: 9, Method: "sendto"}},
		{sets: []string{"steps.settle.timeout=1m"}, got: func(s *Scenario) any { return s.Steps[10].Settle.Timeout }, want: time.Minute},
		{sets: []string{"steps.5={settle: {timeout: 3s}}"}, got: func(s *Scenario) any { return s.Steps[5].Settle.Timeout }, want: 3 * time.Second},
		{sets: []string{"shape.families=[IPv4,IPv6]"}, got: func(s *Scenario) any { return s.Shape.ServiceCIDRs }, want: []string{"10.96.0.0/12", "fd00:10:96::/108"}},
		{sets: []string{"shape.families=[IPv4,IPv6]", "shape.families.0=IPv6", "shape.families.1=IPv4"}, got: func(s *Scenario) any { return s.Shape.PodCIDRs }, want: []string{"fd00:10:128::/64", "10.128.0.0/9"}},
		{sets: []string{"shape.types.NodePort=0.5"}, got: func(s *Scenario) any { return s.Shape.Types }, want: map[string]float64{"NodePort": 0.5}},
		{sets: []string{"proxy.localhostNodePorts=false"}, got: func(s *Scenario) any { return *s.Proxy.LocalhostNodePorts }, want: false},
		{sets: []string{"description=a = b: c"}, got: func(s *Scenario) any { return s.Description }, want: "a = b: c"},
		{sets: []string{"name=5"}, got: func(s *Scenario) any { return s.Name }, want: "5"},
		{sets: []string{"seed=18446744073709551615"}, got: func(s *Scenario) any { return s.Seed }, want: ^uint64(0)},
		{sets: []string{"seed=4"}, n: Sizes{Seed: new(uint64)}, got: func(s *Scenario) any { return s.Seed }, want: uint64(0)},
		{sets: []string{"shape.services=8"}, n: Sizes{Services: 9}, got: func(s *Scenario) any { return s.Shape.Services }, want: 9},
		{
			sets: []string{"shape.endpoints={distribution: uniform, min: 5, max: 15}"}, n: Sizes{Endpoints: 20},
			got: func(s *Scenario) any { return s.Shape.Endpoints }, want: Endpoints{Distribution: "uniform", Count: 20, Min: 10, Max: 30},
		},
		{
			sets: []string{"shape.endpoints.distribution=zipf"}, n: Sizes{Endpoints: 4},
			got: func(s *Scenario) any { return s.Shape.Endpoints }, want: Endpoints{Distribution: "zipf", Count: 4, Max: 400, Skew: 1.5},
		},
		{
			sets: []string{"shape.endpoints={distribution: uniform, max: 30}"},
			got:  func(s *Scenario) any { return s.Shape.Endpoints.Mean() }, want: 15.0,
		},
	} {
		s := smallScenario(t, test.n, test.sets...)
		if diff := cmp.Diff(test.want, test.got(s)); diff != "" {
			t.Errorf("%v %+v (-want +got):\n%s", test.sets, test.n, diff)
		}
	}
}

// Every single value of a scenario has a rule, and every rule a value, so that no new field stays unchecked.
func TestRulesAreComplete(t *testing.T) {
	known := map[string]bool{}
	for _, path := range allPaths() {
		for _, candidate := range []string{path, path + ".N", path + ".*"} {
			if _, ok := rules[candidate]; ok {
				known[candidate] = true
				path = ""
				break
			}
		}
		if path != "" {
			t.Errorf("%s has no rule", path)
		}
	}
	for path := range rules {
		if !known[path] {
			t.Errorf("the rule of %s has no field", path)
		}
	}
}

func TestValidateOfAScenarioMadeInGo(t *testing.T) {
	s := &Scenario{Name: "x", Shape: Shape{Services: 1}, Steps: []Step{{Create: &Create{}}}}
	s.Fill()
	if err := s.Validate(); err != nil {
		t.Errorf("after Fill: %v", err)
	}
	s.Shape.Services = 0
	s.Shape.Types = map[string]float64{"Pod": 1}
	s.Steps = append(s.Steps, Step{})
	want := `shape.services: 0 is not allowed: 1 to 1,000,000 (the default service network numbers about as many)
shape.types.Pod: "Pod" is none of: NodePort, LoadBalancer, Headless, ExternalName
steps.1: is not exactly one kind of step`
	err := s.Validate()
	var problems Problems
	if !errors.As(err, &problems) {
		t.Fatalf("%v, want Problems", err)
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLoadByPathAndName(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(file, []byte(smallest), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := Load(file, nil, Sizes{})
	if err != nil || s.Name != "x" {
		t.Errorf("%v, %v", s, err)
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml"), nil, Sizes{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	_, err = Load("stedy-churn", nil, Sizes{})
	if err == nil || !strings.Contains(err.Error(), "did you mean steady-churn") {
		t.Errorf("misspelt name: %v", err)
	}
}

func TestDurations(t *testing.T) {
	s := &Scenario{Shape: Shape{Services: 100, Endpoints: Endpoints{Count: 10}}}
	var want []time.Duration
	for _, test := range []struct {
		step Step
		want time.Duration
	}{
		{Step{Create: &Create{Services: 10}}, 0},
		{Step{Create: &Create{Rate: 50, Services: 25}}, 500 * time.Millisecond},
		{Step{Create: &Create{Rate: 13}}, 5 * time.Second}, // the remaining 65
		{Step{Churn: &Churn{Rate: 2, Events: 30}}, 15 * time.Second},
		{Step{Rollout: &Rollout{Services: 5, Surge: 0.25, Interval: 2 * time.Second}}, 8 * time.Second},
		{Step{Rollout: &Rollout{Services: 5, Surge: 0.01, Interval: time.Second}}, 10 * time.Second},
		{Step{Scale: &Scale{To: 1010, Rate: 100}}, 10 * time.Second},
		{Step{Scale: &Scale{To: 10, Rate: 100}}, 10 * time.Second},
		{Step{Fault: &Fault{Kind: "lock-held", For: 6 * time.Second}}, 6 * time.Second},
		{Step{Settle: &Settle{Timeout: time.Minute}}, 0},
	} {
		s.Steps, want = append(s.Steps, test.step), append(want, test.want)
	}
	if diff := cmp.Diff(want, s.Durations()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
