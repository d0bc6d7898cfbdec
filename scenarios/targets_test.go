package scenarios

import (
	"slices"
	"strings"
	"testing"
)

const aiming = `
name: x
shape: {services: 300}
targets:
  - {figure: full_sync, services: 100, subject: a/x, baseline: b/x, minRatio: 2}
  - {figure: full_sync, services: 300, subject: a/x, baseline: b/x, minRatio: 3, once: true}
  - {figure: partial_sync, services: 300, subject: c/x, from: 200, exponent: 1}
  - {figure: partial_sync, services: 900, subject: a/x, atMost: 10ms}
steps:
  - create:
`

// Each size has the subjects of its targets, up to the shape's own size.
func TestTargetsMakeCells(t *testing.T) {
	type cell struct {
		services       int
		subjects, once string
	}
	for services, want := range map[int][]cell{
		0:    {{100, "a/x b/x", ""}, {200, "c/x", ""}, {300, "a/x b/x c/x", "b/x"}},
		250:  {{100, "a/x b/x", ""}, {200, "c/x", ""}},
		1000: {{100, "a/x b/x", ""}, {200, "c/x", ""}, {300, "a/x b/x c/x", "b/x"}, {900, "a/x", ""}},
		10:   {{10, "a/x b/x c/x", ""}},
	} {
		s, err := Parse("x", []byte(aiming), nil, Sizes{Services: services})
		if err != nil {
			t.Fatal(err)
		}
		cells, err := s.Cells()
		if err != nil {
			t.Fatal(err)
		}
		var got []cell
		for _, c := range cells {
			got = append(got, cell{c.Scenario.Shape.Services, strings.Join(c.Subjects, " "), strings.Join(c.Once, " ")})
		}
		if !slices.Equal(got, want) {
			t.Errorf("N=%d: %v, want %v", services, got, want)
		}
	}
}

func TestBadTargets(t *testing.T) {
	for target, want := range map[string]string{
		"{figure: full_sync, services: 100, subject: a/x}":                                                   "targets.0: needs exactly one of minRatio, atMost and exponent",
		"{figure: full_sync, services: 100, subject: a/x, minRatio: 2, atMost: 1s, baseline: b/x}":           "exactly one of",
		"{figure: full_sync, services: 100, subject: a/x, minRatio: 2}":                                      "needs minRatio and baseline together",
		"{figure: full_sync, services: 100, subject: a/x, atMost: 1s, once: true}":                           "needs a subject in baseline",
		"{figure: full_sync, services: 100, subject: a/x, from: 100, exponent: 1}":                           "from below services",
		"{figure: npl, services: 100, subject: a/x, atMost: 1s}":                                             "targets.0.figure",
		"{figure: full_sync, services: 100, subject: \"a b\", atMost: 1s}":                                   "a subject is called proxier/backend",
		"{figure: full_sync, services: 100, atMost: 1s}":                                                     "subject",
		"{figure: full_sync, services: 1, subject: a/x, atMost: 1s}\nsweep: [{field: seed, values: [1, 2]}]": "cannot be combined with targets",
	} {
		text := "name: x\nshape: {services: 300}\ntargets:\n  - " + target + "\nsteps:\n  - create:\n"
		if _, err := Parse("x", []byte(text), nil, Sizes{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", target, err, want)
		}
	}
}

// The scenario traversal measures every subject at every size, unless kube-proxy's setup would take too long.
func TestTraversalCells(t *testing.T) {
	s, err := Load("traversal", nil, Sizes{})
	if err != nil {
		t.Fatal(err)
	}
	cells, err := s.Cells()
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[string][]int{}
	for _, cell := range cells {
		for _, subject := range cell.Subjects {
			sizes[subject] = append(sizes[subject], cell.Scenario.Shape.Services)
		}
	}
	all := []int{100, 1000, 5000, 10_000, 30_000}
	for subject, want := range map[string][]int{
		"synclab/iptables-legacy": all, "synclab/iptables-nft": all, "synclab/iptables-legacy-tree": all, "synclab/iptables-nft-tree": all,
		"synclab/nftables": all, "kube-proxy/iptables-legacy": all, "kube-proxy/iptables-nft": all[:4], "kube-proxy/nftables": all[:4],
	} {
		if !slices.Equal(sizes[subject], want) {
			t.Errorf("%s is measured at %v, want %v", subject, sizes[subject], want)
		}
	}
	if len(sizes) != 8 {
		t.Errorf("%d subjects, want 8", len(sizes))
	}
}
