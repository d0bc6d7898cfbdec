package scenarios

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

func TestLibraryAtEverySize(t *testing.T) {
	for _, name := range libraryNames() {
		for _, services := range []int{0, 10, 100, 1_000, 10_000} {
			t.Run(name, func(t *testing.T) {
				s, err := Load(name, nil, Sizes{Services: services})
				if err != nil {
					t.Fatalf("at %d Services: %v", services, err)
				}
				if s.Name != name {
					t.Errorf("name %s, want the file's, %s", s.Name, name)
				}
				if s.Description == "" {
					t.Error("no description")
				}
				if services != 0 && s.Shape.Services != services {
					t.Errorf("%d Services, want %d", s.Shape.Services, services)
				}
				cells, err := s.Cells()
				if err != nil {
					t.Fatalf("at %d Services: cells: %v", services, err)
				}
				if len(cells) == 0 {
					t.Fatal("no cells")
				}
				for _, c := range cells {
					if len(c.Scenario.Sweep) != 0 || len(c.Params) != len(s.Sweep) {
						t.Errorf("cell %v still sweeps %v", c.Params, c.Scenario.Sweep)
					}
				}
			})
		}
	}
}

func TestLibraryRoundTrips(t *testing.T) {
	for _, s := range List() {
		text, err := s.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(s.Name, text, nil, Sizes{})
		if err != nil {
			t.Fatalf("%s: its own YAML: %v\n%s", s.Name, err, text)
		}
		if diff := gocmp.Diff(s, again); diff != "" {
			t.Errorf("%s (-first +again):\n%s", s.Name, diff)
		}
	}
}

func TestLibraryHolds(t *testing.T) {
	want := []string{
		"cold-start", "drift", "flaky-restore", "mixed-types", "node-loss", "restart", "rolling-update",
		"scale-out", "service-create-storm", "size-sweep", "steady-churn", "sync-period",
	}
	var got []string
	for _, s := range List() {
		got = append(got, s.Name)
	}
	for _, name := range want {
		if !slices.Contains(got, name) {
			t.Errorf("no %s in %v", name, got)
		}
	}
	if !slices.IsSorted(got) {
		t.Errorf("not sorted: %v", got)
	}
}

// The scenario faults has the trial of each kind of fault, in their order.
func TestFaultsScenario(t *testing.T) {
	const file, head, tail = "library/faults.yaml", "      rate: 100\n", "  - traffic: {stop: true}\n"
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(string(have), head)
	_, after, _ := strings.Cut(string(have), tail)
	want := before + head
	forms := slices.Clone(faultForms)
	slices.SortStableFunc(forms, func(a, b faultForm) int { return cmp.Compare(a.place, b.place) })
	for _, form := range forms {
		if len(form.trial) == 0 && form.kind != FaultClear {
			t.Errorf("%s has no trial", form.kind)
		}
		for _, line := range form.trial {
			if strings.HasPrefix(line, "#") {
				want += "\n"
			}
			want += "  " + line + "\n"
		}
	}
	want += tail + after
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := gocmp.Diff(want, string(have)); diff != "" {
		t.Errorf("(-want +have; -update rewrites):\n%s", diff)
	}
}
