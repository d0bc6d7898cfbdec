package scenarios

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the expected errors in testdata, and the trials in library/faults.yaml")

// The marks between the parts of a testdata file, which is a txtar archive.
const scenarioMark, errorsMark = "-- x.yaml --\n", "-- errors --\n"

// TestBadInputs reads testdata/bad/*.txtar: comment lines with overrides
// ("--set a=b", "services=N", "endpoints=N"), the scenario, and the exact errors.
func TestBadInputs(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			input, want, _ := strings.Cut(string(text), errorsMark)
			comment, scenario, _ := strings.Cut(input, scenarioMark)
			sets, sizes := overridesIn(comment)
			_, err = Parse("x.yaml", []byte(scenario), sets, sizes)
			if err == nil {
				t.Fatal("loads, and should not")
			}
			var problems Problems
			if !errors.As(err, &problems) {
				t.Errorf("%T, want Problems", err)
			}
			got := err.Error() + "\n"
			if *update {
				if err := os.WriteFile(file, []byte(input+errorsMark+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got; -update rewrites):\n%s", diff)
			}
		})
	}
}

func overridesIn(comment string) (sets []string, n Sizes) {
	for line := range strings.Lines(comment) {
		line = strings.TrimRight(line, "\n")
		name, value, _ := strings.Cut(line, "=")
		number, _ := strconv.Atoi(value)
		switch {
		case strings.HasPrefix(line, "--set "):
			sets = append(sets, strings.TrimPrefix(line, "--set "))
		case name == "services":
			n.Services = number
		case name == "endpoints":
			n.Endpoints = number
		}
	}
	return sets, n
}
