package scenarios

import (
	"slices"
	"strings"
	"testing"
)

func withThresholds(text string) string {
	return "name: x\nshape: {services: 30}\nthresholds: " + text + "\nsteps:\n  - create:\n"
}

func TestThresholds(t *testing.T) {
	s, err := Parse("x", []byte(withThresholds("{rules: 0, full_sync: 0.05, all: 0.2}")), nil, Sizes{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"full sync: at most 5 % more than before", "rules: at most 0 % more than before", "every other figure: at most 20 % more than before"}
	if got := s.ThresholdLines(); !slices.Equal(got, want) {
		t.Errorf("lines %q, want %q", got, want)
	}
	cells, err := s.Cells() // through the scenario's own YAML
	if err != nil || cells[0].Scenario.Thresholds["full_sync"] != 0.05 || len(cells[0].Scenario.Thresholds) != 3 {
		t.Errorf("cells %+v, %v", cells, err)
	}
	if s, err = Parse("x", []byte(withThresholds("{all: 1}")), []string{"thresholds.all=0.3"}, Sizes{}); err != nil || s.Thresholds["all"] != 0.3 {
		t.Errorf("set: %v, %v", s, err)
	}
}

func TestBadThresholds(t *testing.T) {
	for text, want := range map[string]string{
		"{fullsync: 0.1}":   "thresholds.fullsync",
		"{full_sync: -0.1}": "thresholds.full_sync",
		"{full_sync: 5%}":   "thresholds.full_sync",
		"{full_sync: 400}":  "0.1 allows 10 % more",
		"0.1":               "want a mapping",
	} {
		if _, err := Parse("x", []byte(withThresholds(text)), nil, Sizes{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}
