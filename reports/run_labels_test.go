package reports

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"synclab/bench/raw"
	"synclab/reports/comparison"
	"synclab/reports/records"
	"synclab/reports/reportstest"
)

// A run's label has only the parts that distinguish the run.
func TestRunLabels(t *testing.T) {
	run := func(id, kernel, synclab, cpu string, cpus int) raw.Run {
		return raw.Run{ID: id, Seed: 1, Versions: raw.Versions{Kernel: kernel, Synclab: synclab, IPTablesNft: "iptables v1.8.9 (nf_tables)", IPTablesLegacy: "iptables v1.8.9 (legacy)"},
			Machine: raw.Machine{CPU: cpu, CPUs: cpus}}
	}
	xeon := "Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz"
	tools := run("b", "6.1", "v1", xeon, 2)
	tools.Versions.IPTablesNft = "iptables v1.8.10 (nf_tables)"
	for _, c := range []struct {
		name string
		runs []raw.Run
		want []string
	}{
		{"one", []raw.Run{run("a", "6.1", "v1", xeon, 2)}, []string{"a"}},
		{"alike", []raw.Run{run("a", "6.1", "v1", xeon, 2), run("b", "6.1", "v1", xeon, 2)}, []string{"a", "b"}},
		{"one id", []raw.Run{run("a", "6.1", "v1", xeon, 2), run("a", "6.1", "v1", xeon, 2)}, []string{"a", "a #2"}},
		{"kernels", []raw.Run{run("a", "6.1", "v1", xeon, 2), run("b", "6.18", "v1", xeon, 4)}, []string{"Linux 6.1", "Linux 6.18"}},
		{"versions", []raw.Run{run("a", "6.1", "v1", xeon, 2), run("b", "6.1", "v2", xeon, 2)}, []string{"synclab v1", "synclab v2"}},
		{"machines", []raw.Run{run("a", "6.1", "v1", xeon, 32), run("b", "6.1", "v1", "AMD EPYC 7763 64-Core Processor", 2)}, []string{"32 × " + xeon, "2 × AMD EPYC 7763 64-Core Processor"}},
		{"tools", []raw.Run{run("a", "6.1", "v1", xeon, 2), tools}, []string{"iptables v1.8.9", "iptables v1.8.9 and v1.8.10"}},
		{"two parts", []raw.Run{run("a", "6.1", "v1", xeon, 2), run("b", "6.1", "v2", xeon, 2), run("c", "6.18", "v1", xeon, 2)},
			[]string{"Linux 6.1, synclab v1", "Linux 6.1, synclab v2", "Linux 6.18, synclab v1"}},
		{"some alike", []raw.Run{run("a", "6.1", "v1", xeon, 2), run("b", "6.1", "v1", xeon, 2), run("c", "6.18", "v1", xeon, 2)},
			[]string{"Linux 6.1, a", "Linux 6.1, b", "Linux 6.18"}},
	} {
		var runs []*records.Run
		for _, r := range c.runs {
			runs = append(runs, &records.Run{Info: r})
		}
		if got := records.RunLabels(runs); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestRunsOfMachines: a page of several machines distinguishes them and lists their differences. It never divides a
// sync of one by the kernel time of the other.
func TestRunsOfMachines(t *testing.T) {
	before, after := reportstest.Pair(t, reportstest.Run{Scenario: "cold-start", Subjects: []reportstest.Subject{reportstest.Legacy}, Sizes: []int{1000}, Reps: 8}, func(y *reportstest.Run) { y.Subjects[0].Base /= 2 })
	reportstest.EditRun(t, after, func(r *raw.Run) { r.Versions.Kernel, r.Machine.CPUs = "6.1.0", 16 })
	out := filepath.Join(t.TempDir(), "both")
	s, err := Build([]string{before, after}, out, Options{NoPNG: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := []string{s.Figures[0].Series, s.Figures[1].Series}; !slices.Equal(got, []string{reportstest.Legacy.Name + " · Linux 6.18.0", reportstest.Legacy.Name + " · Linux 6.1.0"}) {
		t.Errorf("series %q", got)
	}
	if !hasWarning(s, "run Linux 6.1.0 differs from Linux 6.18.0 in kernel and CPUs: compare with care") {
		t.Errorf("warnings %q", s.Warnings)
	}
	c := s.Comparisons[0]
	if len(c.Floors) != 2 || c.Floors[0].Value == c.Floors[1].Value {
		t.Fatalf("floors %+v", c.Floors)
	}
	for i, side := range c.Sides {
		if floor := c.Floor(side, comparison.FigureFull); floor == nil || floor.Series != c.Sides[i].Series {
			t.Errorf("the kernel floor of %s is %+v", side.Series, floor)
		}
	}
	page := readPage(t, out)
	for _, want := range []string{"The runs", "Linux 6.1.0", "Machine", "16 × Example"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}
