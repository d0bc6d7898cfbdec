package reports

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"synclab/bench/raw"
	"synclab/reports/comparison"
	"synclab/reports/doc"
	"synclab/reports/reportstest"
	"synclab/reports/sections"
)

// buildOf writes a run into a folder and builds its report there.
func buildOf(t testing.TB, run interface{ Write(testing.TB, string) }, dir string, opts Options) *sections.Summary {
	t.Helper()
	run.Write(t, dir)
	s, err := Build([]string{dir}, "", opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func readPage(t *testing.T, dir string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(page), "\u00a0", " ") // before units
}

func hasWarning(s *sections.Summary, text string) bool {
	return strings.Contains(strings.Join(s.Warnings, "\n"), text)
}

// TestRunsOfOneCell: two runs of the same cell are two series that are compared with one another.
func TestRunsOfOneCell(t *testing.T) {
	root := t.TempDir()
	faster := reportstest.Legacy
	faster.Base /= 2
	before := reportstest.Run{ID: "before", Scenario: "cold-start", Subjects: []reportstest.Subject{reportstest.Legacy}, Sizes: []int{1000}, Reps: 8}
	after := reportstest.Run{ID: "after", Scenario: "cold-start", Subjects: []reportstest.Subject{faster}, Sizes: []int{1000}, Reps: 8}
	dirs := []string{filepath.Join(root, "a"), filepath.Join(root, "b")}
	before.Write(t, dirs[0])
	after.Write(t, dirs[1])
	out := filepath.Join(root, "comparison")
	s, err := Build(dirs, out, Options{NoPNG: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Figures) != 2 || s.Figures[0].Series != reportstest.Legacy.Name+" · before" || s.Figures[1].Series != reportstest.Legacy.Name+" · after" {
		t.Errorf("series %+v", s.Figures)
	}
	if len(s.Comparisons) != 1 {
		t.Fatalf("comparisons %+v", s.Comparisons)
	}
	if full := s.Comparisons[0].Ratio(reportstest.Legacy.Name+" · after", reportstest.Legacy.Name+" · before", comparison.FigureFull); full == nil || !full.Differs ||
		full.Ratio < 0.45 || full.Ratio > 0.55 || full.Paired || full.Pairs != 0 || full.NB != 8 || full.Low == nil {
		t.Errorf("comparison %+v", full)
	}
	if _, err := os.Stat(filepath.Join(dirs[0], "index.html")); err == nil {
		t.Error("a report in the first run's folder although out names another")
	}
	lines, err := os.ReadFile(filepath.Join(out, "bench.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{"run: before\n", "run: after\n"} {
		_, its, found := strings.Cut(string(lines), of)
		its, _, _ = strings.Cut(its, "\nrun: ")
		if n := strings.Count(its, "BenchmarkFullSync/"); !found || n != 8 {
			t.Errorf("bench.txt has %d full syncs of %q, want 8", n, of)
		}
	}
	if page := readPage(t, out); strings.Count(page, "<pre tabindex=\"0\">") != 2 {
		t.Error("the page has no commands that repeat both runs")
	}
}

// TestRunsOfOtherSizes: runs whose cells do not overlap are one series over all sizes.
func TestRunsOfOtherSizes(t *testing.T) {
	root := t.TempDir()
	var dirs []string
	for _, size := range []int{300, 1000, 3000} {
		dir := filepath.Join(root, doc.Grouped(int64(size)))
		reportstest.Run{ID: dir, Scenario: "cold-start", Subjects: []reportstest.Subject{reportstest.Legacy}, Sizes: []int{size}, Reps: 3}.Write(t, dir)
		dirs = append(dirs, dir)
	}
	s, err := Build(dirs, "", Options{NoPNG: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Growth) == 0 || s.Growth[0].Series != reportstest.Legacy.Name || len(s.Growth[0].Sizes) != 3 {
		t.Errorf("growth %+v", s.Growth)
	}
	if len(s.Comparisons) != 0 {
		t.Errorf("comparisons %+v", s.Comparisons)
	}
}

func TestTornLastLine(t *testing.T) {
	dir := t.TempDir()
	y := reportstest.Run{ID: "torn", Scenario: "cold-start", Subjects: []reportstest.Subject{reportstest.Legacy}, Sizes: []int{500}, Reps: 2, Status: "interrupted"}
	y.Write(t, dir)
	path := filepath.Join(dir, "records.jsonl")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(whole, `{"at":12.5,"scen`...), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := Build([]string{dir}, "", Options{NoPNG: true})
	if err != nil {
		t.Fatal(err)
	}
	if !hasWarning(s, "is incomplete and was skipped") || !hasWarning(s, "interrupted") {
		t.Errorf("warnings %q", s.Warnings)
	}
	if s.Figures[0].Figure(comparison.FigureFull).N != 2 {
		t.Errorf("full syncs %+v", s.Figures[0].Figure(comparison.FigureFull))
	}

	broken := append([]byte("{\"at\":\n"), whole...)
	if err := os.WriteFile(path, broken, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Build([]string{dir}, "", Options{NoPNG: true}); err == nil || !strings.Contains(err.Error(), "records.jsonl:1") {
		t.Errorf("a broken first line: %v", err)
	}
}

// TestFailedSyncs: failed syncs are counted, and their durations left out.
func TestFailedSyncs(t *testing.T) {
	y := reportstest.Run{ID: "failing", Scenario: "steady-churn", Subjects: []reportstest.Subject{reportstest.Legacy}, Sizes: []int{500}, Reps: 2, Churn: 40, Failed: 2}
	s := buildOf(t, y, t.TempDir(), Options{NoPNG: true})
	partial := slices.IndexFunc(s.Rows, func(r sections.Row) bool { return r.Metric == raw.PartialSync })
	if s.Rows[partial].Max >= 9 || !hasWarning(s, "4 syncs failed") {
		t.Errorf("longest partial %v, %q", s.Rows[partial].Max, s.Warnings)
	}
}

// TestSparse: Build writes a report whatever is missing.
func TestSparse(t *testing.T) {
	position := 5
	one := func(change func(*raw.Record)) raw.Record {
		r := raw.Record{Scenario: "x", Subject: "a/b", Services: 10, Endpoints: 1, Rep: 1, Value: 1, Unit: "s", At: 2}
		change(&r)
		return r
	}
	for name, records := range map[string][]raw.Record{
		"none":           nil,
		"one change":     {one(func(r *raw.Record) { r.Metric = raw.NetworkProgrammingLatency })},
		"instant change": {one(func(r *raw.Record) { r.Metric, r.Value = raw.NetworkProgrammingLatency, 0 })},
		"one packet":     {one(func(r *raw.Record) { r.Metric, r.Position = raw.FirstPacket, &position })},
		"no position":    {one(func(r *raw.Record) { r.Metric = raw.FirstPacket })},
		"zero sync":      {one(func(r *raw.Record) { r.Metric, r.Value, r.Sync = raw.FullSync, 0, 1 })},
		"only failures":  {one(func(r *raw.Record) { r.Metric, r.Error = raw.FullSync, "no" }), one(func(r *raw.Record) { r.Metric, r.Unit = raw.SyncFailed, "count" })},
		"unknown metric": {one(func(r *raw.Record) { r.Metric, r.Unit = "jitter", "furlongs" })},
		"no services":    {one(func(r *raw.Record) { r.Metric, r.Services = raw.FullSync, 0 }), one(func(r *raw.Record) { r.Metric = raw.FullSync })},
		"hostile names":  {one(func(r *raw.Record) { r.Metric, r.Scenario, r.Subject = raw.FullSync, "<script>", "<b>/&" })},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			reportstest.Run{ID: name, Scenario: "x", Sizes: []int{1}}.Write(t, dir)
			var lines strings.Builder
			for _, r := range records {
				if err := json.NewEncoder(&lines).Encode(r); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, "records.jsonl"), []byte(lines.String()), 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := Build([]string{dir}, "", Options{NoPNG: true}); err != nil {
				t.Fatal(err)
			}
			if page := readPage(t, dir); strings.Contains(page, "<b>/") || strings.Contains(page, "NaN") || strings.Contains(page, "Inf") {
				t.Error("the page has an unescaped name, NaN or Inf")
			}
		})
	}
}

// TestRuleMismatch: a warning appears if the kernel's rule count differs from the expected number.
func TestRuleMismatch(t *testing.T) {
	dir := t.TempDir()
	y := reportstest.Run{ID: "rules", Scenario: "cold-start", Subjects: []reportstest.Subject{reportstest.Legacy}, Sizes: []int{500}, Reps: 2}
	s := buildOf(t, y, dir, Options{NoPNG: true})
	if hasWarning(s, "expected numbers") {
		t.Errorf("warnings %q", s.Warnings)
	}
	path := filepath.Join(dir, "records.jsonl")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	wrong := strings.Replace(string(text), `"metric":"rules_kernel","value":11511`, `"metric":"rules_kernel","value":11510`, 1)
	if wrong == string(text) {
		t.Fatal("the synthetic run has no such count")
	}
	if err := os.WriteFile(path, []byte(wrong), 0o644); err != nil {
		t.Fatal(err)
	}
	if s, err = Build([]string{dir}, "", Options{NoPNG: true}); err != nil {
		t.Fatal(err)
	}
	if !hasWarning(s, "1 of 4 rule counts differ from the expected numbers (table nat: the kernel has 11,510, expected are 11,511)") {
		t.Errorf("warnings %q", s.Warnings)
	}
}

func TestBuildOfNothing(t *testing.T) {
	if _, err := Build(nil, "", Options{}); err == nil {
		t.Error("Build without a run returned no error")
	}
	dir := t.TempDir()
	if _, err := Build([]string{dir}, "", Options{}); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("an empty folder: %v", err)
	}
}
