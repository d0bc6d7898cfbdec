package reports

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"synclab/bench/raw"
	"synclab/reports/comparison"
	"synclab/reports/records"
	"synclab/reports/reportstest"
	"synclab/reports/sections"
)

// shardRun divides a run into n shards: unit k, in the order of the records, is in shard k mod n. change may alter
// each.
func shardRun(t *testing.T, whole, sweep string, n int, change func(i int, run *raw.Run, records []raw.Record)) []string {
	t.Helper()
	run, records, err := raw.ReadRun(whole)
	if err != nil {
		t.Fatal(err)
	}
	type key struct{ services, rep int }
	var units []key
	parts := make([][]raw.Record, n)
	shards := make([]raw.Shard, n)
	for _, r := range records {
		at := key{r.Services, r.Rep}
		k := slices.Index(units, at)
		if k < 0 {
			k = len(units)
			units = append(units, at)
			shards[k%n].Units++
		}
		parts[k%n] = append(parts[k%n], r)
	}
	var dirs []string
	for i := range n {
		own := run
		own.Shard = &shards[i]
		own.Shard.Shard, own.Shard.Of, own.Shard.Sweep, own.Shard.Total, own.Shard.Host = i, n, "00c0ffee", len(units), "node-a"
		if change != nil {
			change(i, &own, parts[i])
		}
		dir := filepath.Join(sweep, "shard-"+string(rune('0'+i))+"-of-"+string(rune('0'+n)))
		writeRecords(t, dir, own, parts[i])
		dirs = append(dirs, dir)
	}
	return dirs
}

func writeRecords(t *testing.T, dir string, run raw.Run, records []raw.Record) {
	t.Helper()
	head, err := json.Marshal(run)
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	encoder := json.NewEncoder(&lines)
	for _, r := range records {
		if err := encoder.Encode(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"run.json": string(head), "records.jsonl": lines.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

var divisible = reportstest.Run{ID: "whole", Scenario: "size-sweep", Subjects: []reportstest.Subject{reportstest.Legacy, reportstest.NFT}, Sizes: []int{100, 1000}, Reps: 7, Churn: 20, Probe: 10, Outside: true}

// Merged shards of one machine have the results of one run, to the last digit and in the same order.
func TestMergeIsOneRun(t *testing.T) {
	root := t.TempDir()
	whole := filepath.Join(root, "whole")
	want := buildOf(t, divisible, whole, Options{NoPNG: true})
	sweep := filepath.Join(root, "sweep")
	dirs := shardRun(t, whole, sweep, 3, nil)
	slices.Reverse(dirs)
	merged, err := records.LoadAll(dirs)
	if err != nil {
		t.Fatal(err)
	}
	one, err := records.Load(whole)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(one.Records, merged[0].Records); diff != "" || len(merged) != 1 {
		t.Errorf("%d runs, records (-one run +merged):\n%.2000s", len(merged), diff)
	}
	got, err := Build([]string{sweep}, "", Options{NoPNG: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []struct {
		name      string
		want, got any
	}{
		{"rows", want.Rows, got.Rows}, {"growth", want.Growth, got.Growth},
		{"ratios", ratiosOf(want), ratiosOf(got)}, {"warnings", want.Warnings, got.Warnings},
	} {
		if diff := cmp.Diff(part.want, part.got); diff != "" {
			t.Errorf("%s (-one run +merged):\n%.2000s", part.name, diff)
		}
	}
	if head := got.Runs[0]; head.Status != raw.StatusComplete || head.Missing != "" || len(head.Shards) != 3 || head.Label != "sweep" {
		t.Errorf("head %+v", head)
	}
	if page := readPage(t, sweep); !strings.Contains(page, "machine node-a") || !strings.Contains(page, "(shards 0, 1, 2 of 3)") {
		t.Error("the page does not name the machine of the shards")
	}
}

func ratiosOf(s *sections.Summary) (all []comparison.Comparison) {
	for _, c := range s.Comparisons {
		all = append(all, c.Ratios...)
	}
	return all
}

// Every output names missing and interrupted shards.
func TestMergeNamesWhatIsMissing(t *testing.T) {
	root := t.TempDir()
	whole := filepath.Join(root, "whole")
	divisible.Write(t, whole)
	dirs := shardRun(t, whole, filepath.Join(root, "sweep"), 5, func(i int, run *raw.Run, _ []raw.Record) {
		if i == 3 {
			run.Status = raw.StatusInterrupted
		}
		if i == 2 {
			run.Versions.Synclab = "another"
		}
	})
	s, err := Build([]string{dirs[0], dirs[2], dirs[3]}, "", Options{NoPNG: true})
	if err != nil {
		t.Fatal(err)
	}
	const missing = "shards 1, 4 of 5 are missing, 9 of 14 repetitions of cells are present"
	if s.Runs[0].Missing != missing || !hasWarning(s, missing) || !hasWarning(s, "shard 3/5 is interrupted") {
		t.Errorf("missing %q, warnings %q", s.Runs[0].Missing, s.Warnings)
	}
	if !hasWarning(s, "measured several versions of synclab: ") || hasWarning(s, "versions of kube-proxy") {
		t.Errorf("one shard is of another synclab, warnings %q", s.Warnings)
	}
	if page := readPage(t, filepath.Join(root, "sweep")); !strings.Contains(page, missing) {
		t.Error("the page does not name the missing shards")
	}
}

// Folders that are no parts of one sweep are refused, with the reason.
func TestMergeRefuses(t *testing.T) {
	root := t.TempDir()
	whole := filepath.Join(root, "whole")
	divisible.Write(t, whole)
	ours := shardRun(t, whole, filepath.Join(root, "ours"), 2, nil)
	again := shardRun(t, whole, filepath.Join(root, "again"), 2, nil)
	seeded := shardRun(t, whole, filepath.Join(root, "seeded"), 2, func(_ int, run *raw.Run, _ []raw.Record) { run.Shard.Sweep, run.Seed = "0ther", 8 })
	thirds := shardRun(t, whole, filepath.Join(root, "thirds"), 3, nil)
	for _, c := range []struct {
		name string
		dirs []string
		want string
	}{
		{"twice", []string{ours[0], ours[1], again[1]}, "shard 1/2 exists twice: " + ours[1] + " and " + again[1]},
		{"another sweep", []string{ours[0], seeded[1]}, "different sweeps (seeds 7 and 8)"},
		{"other division", []string{ours[0], thirds[1]}, "divide one sweep differently: shard 0/2 and shard 1/3"},
		{"no run", []string{root}, "not a run"},
	} {
		if _, err := Build(c.dirs, filepath.Join(root, "out"), Options{NoPNG: true}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
	}
	// Two sweeps are two runs.
	s, err := Build([]string{filepath.Join(root, "ours"), filepath.Join(root, "again")}, filepath.Join(root, "out"), Options{NoPNG: true})
	if err != nil || len(s.Runs) != 2 || s.Runs[0].Label != "ours" || s.Runs[1].Label != "again" {
		t.Errorf("two sweeps: %v, %+v", err, s)
	}
}

// Medians mix machines of different speed, and the report warns. Ratios do not mix them.
func TestMergeOfTwoMachines(t *testing.T) {
	root := t.TempDir()
	whole := filepath.Join(root, "whole")
	divisible.Write(t, whole)
	run, _, err := raw.ReadRun(whole)
	if err != nil {
		t.Fatal(err)
	}
	own, others := []float64{1, 10, 10}, []float64{2, 5, 20} // by repetition; the ratio of medians is 0.5, the ratios of the repetitions are 2, 0.5 and 2
	var records []raw.Record
	for rep := 1; rep <= 3; rep++ {
		for i, subject := range run.Subjects {
			r := raw.Record{Scenario: run.Scenario.Name, Subject: subject, Services: 100, Endpoints: 10, Rep: rep, Metric: raw.FullSync, Unit: "s", Sync: 1, Kind: "full"}
			if r.Value = own[rep-1]; i == 1 {
				r.Value = others[rep-1]
			}
			records = append(records, r)
		}
	}
	writeRecords(t, whole, run, records)
	sweep := filepath.Join(root, "sweep")
	shardRun(t, whole, sweep, 3, func(i int, run *raw.Run, _ []raw.Record) {
		if i > 0 {
			run.Shard.Host, run.Machine.CPU, run.Versions.Kernel = "node-b", "Slow CPU", "6.12.0"
		}
	})
	s, err := Build([]string{sweep}, "", Options{NoPNG: true})
	if err != nil {
		t.Fatal(err)
	}
	if !hasWarning(s, "measured on 2 machines of 2 kinds: medians of 1 cell mix the machines") {
		t.Errorf("warnings %q", s.Warnings)
	}
	full := s.Comparisons[0].Ratio(run.Subjects[1], run.Subjects[0], comparison.FigureFull)
	if full == nil || full.Ratio != 2 || full.Pairs != 3 {
		t.Errorf("ratio %+v, want the repetitions' 2", full)
	}
	if head := s.Runs[0]; head.Machine.CPU != "" || head.Versions.Kernel != "" || head.Versions.Nft == "" {
		t.Errorf("the run has a machine that not all shards share: %+v, %+v", head.Machine, head.Versions)
	}
	page := readPage(t, sweep)
	for _, want := range []string{"Example CPU @ 2.60GHz × 2", "Slow CPU × 2", "kernel 6.12.0", "(shards 1, 2 of 3)"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	lines, err := os.ReadFile(filepath.Join(sweep, "bench.txt"))
	if err != nil || strings.Count(string(lines), "cpu: Slow CPU") != 2 || strings.Count(string(lines), "cpu: Example CPU") != 1 {
		t.Errorf("bench.txt does not distinguish the machines: %v\n%s", err, lines)
	}
}
