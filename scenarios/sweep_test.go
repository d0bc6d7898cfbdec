package scenarios

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGeometric(t *testing.T) {
	for _, test := range []struct {
		low, high, points int
		want              []int
	}{
		{100, 5_000, 6, []int{100, 220, 480, 1_000, 2_300, 5_000}},
		{100, 10_000, 5, []int{100, 320, 1_000, 3_200, 10_000}},
		{1, 1_000, 4, []int{1, 10, 100, 1_000}},
		{1, 3, 10, []int{1, 2, 3}}, // rounding makes most of them equal
		{123, 4_567, 3, []int{123, 750, 4_567}},
		{99, 101, 5, []int{99, 100, 101}},
		{100, 101, 5, []int{100, 101}},
		{100, 100, 5, []int{100}},
		{100, 10, 6, []int{10}}, // N below the series: N alone
	} {
		got := geometric(test.low, test.high, test.points)
		if !slices.Equal(got, test.want) {
			t.Errorf("%d to %d in %d: %v, want %v", test.low, test.high, test.points, got, test.want)
		}
	}
}

func TestSizeSetsTheUpperEnd(t *testing.T) {
	for services, want := range map[int][]int{
		0:      {100, 220, 480, 1_000, 2_300, 5_000},
		10_000: {100, 250, 630, 1_600, 4_000, 10_000},
		10:     {10},
	} {
		s, err := Load("size-sweep", nil, Sizes{Services: services})
		if err != nil {
			t.Fatal(err)
		}
		cells, err := s.Cells()
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, c := range cells {
			got = append(got, c.Scenario.Shape.Services)
			if want := fmt.Sprint(c.Scenario.Shape.Services); c.Params["shape.services"] != want {
				t.Errorf("params %v, want %s", c.Params, want)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("N=%d: %v, want %v", services, got, want)
		}
	}
}

const sweeping = `
name: x
shape:
  services: 40
  endpoints: {distribution: uniform, min: 2, max: 6}
sweep:
  - field: shape.families
    values: ["[IPv4]", "[IPv6, IPv4]"]
  - field: shape.endpoints.count
    values: [4, 8]
  - field: steps.churn.rate
    values: [1, 2.5]
steps:
  - create:
  - churn: {rate: 1, events: 10}
`

func TestCells(t *testing.T) {
	s, err := Parse("x.yaml", []byte(sweeping), nil, Sizes{})
	if err != nil {
		t.Fatal(err)
	}
	cells, err := s.Cells()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range cells {
		shape, e := c.Scenario.Shape, c.Scenario.Shape.Endpoints
		got = append(got, fmt.Sprintf("%v %v %d %d..%d %g", shape.Families, shape.PodCIDRs, e.Count, e.Min, e.Max, c.Scenario.Steps[1].Churn.Rate))
	}
	// The last axis is the fastest. Default networks follow the families, and the distribution follows its mean.
	want := []string{
		"[IPv4] [10.128.0.0/9] 4 2..6 1",
		"[IPv4] [10.128.0.0/9] 4 2..6 2.5",
		"[IPv4] [10.128.0.0/9] 8 4..12 1",
		"[IPv4] [10.128.0.0/9] 8 4..12 2.5",
		"[IPv6 IPv4] [fd00:10:128::/64 10.128.0.0/9] 4 2..6 1",
		"[IPv6 IPv4] [fd00:10:128::/64 10.128.0.0/9] 4 2..6 2.5",
		"[IPv6 IPv4] [fd00:10:128::/64 10.128.0.0/9] 8 4..12 1",
		"[IPv6 IPv4] [fd00:10:128::/64 10.128.0.0/9] 8 4..12 2.5",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// Cells share nothing with each other or with the scenario.
	cells[0].Scenario.Steps[1].Churn.Events = 99
	if cells[1].Scenario.Steps[1].Churn.Events != 10 || s.Steps[1].Churn.Events != 10 {
		t.Error("changing one cell changed another")
	}
}

func TestCellsWithoutSweep(t *testing.T) {
	s, err := Load("steady-churn", nil, Sizes{})
	if err != nil {
		t.Fatal(err)
	}
	cells, err := s.Cells()
	if err != nil {
		t.Fatal(err)
	}
	if len(cells) != 1 || cells[0].Params != nil {
		t.Fatalf("%d cells with %v, want one without params", len(cells), cells[0].Params)
	}
	if diff := cmp.Diff(*s, cells[0].Scenario); diff != "" {
		t.Errorf("(-scenario +cell):\n%s", diff)
	}
}

func TestSyncPeriodCells(t *testing.T) {
	s, err := Load("sync-period", nil, Sizes{})
	if err != nil {
		t.Fatal(err)
	}
	cells, err := s.Cells()
	if err != nil {
		t.Fatal(err)
	}
	if len(cells) != 10 {
		t.Fatalf("%d cells, want 5 periods × 2 policies", len(cells))
	}
	last := cells[9].Scenario.Proxy
	if got := fmt.Sprint(last.MinSyncPeriod, " ", last.Policy); got != "10s completion-to-start" {
		t.Errorf("last cell: %s", got)
	}
}
