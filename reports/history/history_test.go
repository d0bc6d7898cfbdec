package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"synclab/bench/raw"
	"synclab/reports"
	"synclab/reports/comparison"
	"synclab/reports/diff"
	"synclab/reports/estimate"
	"synclab/reports/records"
	"synclab/reports/reportstest"
)

// simulated makes the entries of runs without a change, but for the first figure of the last runs, which is slower. Runs
// differ by 2 %, and repetitions of a run by 3 %.
func simulated(random *rand.Rand, runs, slowRuns int, slower float64) []Entry {
	const repetitions = 6
	var out []Entry
	for i := range runs {
		e := Entry{Run: raw.Run{ID: fmt.Sprint("run-", i), Status: raw.StatusComplete, Reps: repetitions, Started: time.Date(2026, 1, 1+i, 0, 0, 0, 0, time.UTC)}}
		for k := range 20 {
			middle := math.Exp(0.02 * random.NormFloat64())
			if k == 0 && i >= runs-slowRuns {
				middle *= slower
			}
			var values []float64
			for range repetitions {
				values = append(values, middle*math.Exp(0.03*random.NormFloat64()))
			}
			e.Figures = append(e.Figures, Figure{"synclab/nftables", records.Cell{Scenario: "x", Services: 100 * (1 + k)}, "",
				*estimate.Of(comparison.FigureFull, "s", estimate.Single(values...), 50)})
		}
		out = append(out, e)
	}
	return out
}

// TestScatter: a history of enough runs shows how much they differ, besides their repetitions.
func TestScatter(t *testing.T) {
	h := Of(simulated(rand.New(rand.NewPCG(5, 6)), 24, 0, 1), Options{})
	var shares []float64
	for _, trend := range h.Trends {
		s := h.Scatter(trend.Machine)(diff.Delta{Subject: trend.Subject, Cell: trend.Cell, Figure: trend.Figure, Detail: trend.Detail})
		if s == nil || s.Runs < leastScatter {
			t.Fatalf("%+v: %+v", trend.Cell, s)
		}
		shares = append(shares, s.Share)
	}
	if median := estimate.Median(shares); median < 0.014 || median > 0.026 {
		t.Errorf("scatter of runs %v, want 0.02", median)
	}
	if few := Of(simulated(rand.New(rand.NewPCG(5, 6)), leastScatter-1, 0, 1), Options{}); few.Scatter(few.Trends[0].Machine)(diff.Delta{Subject: few.Trends[0].Subject, Cell: few.Trends[0].Cell, Figure: few.Trends[0].Figure}) != nil {
		t.Error("a scatter of too few runs")
	}
}

// TestRates: histories without a change rarely show one, and a regression of 15 % is nearly always found.
func TestRates(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	const histories = 200
	random := rand.New(rand.NewPCG(1, 2))
	alarms, changes := 0, 0
	for range histories {
		h := Of(simulated(random, 24, 0, 1), Options{})
		if len(h.Worse()) > 0 {
			alarms++
		}
		if slices.ContainsFunc(h.Trends, func(t Trend) bool { return len(t.Levels) > 1 }) {
			changes++
		}
	}
	t.Logf("%d histories of 24 runs and 20 figures without a change: %d with a false alarm (%.1f %%), %d with any change shown (%.1f %%)",
		histories, alarms, 100*float64(alarms)/histories, changes, 100*float64(changes)/histories)
	if alarms > histories*5/100 {
		t.Errorf("%d false alarms in %d histories", alarms, histories)
	}
	if changes > histories*7/100 {
		t.Errorf("%d of %d histories without a change show one", changes, histories)
	}
	for _, c := range []struct{ slowRuns, least int }{{1, 90}, {3, 98}, {6, 98}} {
		found, placed := 0, 0
		for range histories {
			h := Of(simulated(random, 24, c.slowRuns, 1.15), Options{})
			levels := h.Trends[0].Levels
			if last := levels[len(levels)-1]; len(levels) > 1 && last.Ratio != nil && *last.Ratio > 1.05 {
				found++
				if last.From == 24-c.slowRuns {
					placed++
				}
			}
		}
		t.Logf("%d histories of 24 runs with 15 %% more in one of 20 figures of the last %d runs: %d found (%.1f %%), %d of them at the right run",
			histories, c.slowRuns, found, 100*float64(found)/histories, placed)
		if found < histories*c.least/100 || placed < found*8/10 {
			t.Errorf("%d of %d found, %d at the right run", found, histories, placed)
		}
	}
}

// TestWorseOnce: a worse level is new with the run that first shows it, and no longer with the next ones.
func TestWorseOnce(t *testing.T) {
	all := simulated(rand.New(rand.NewPCG(3, 4)), 26, 4, 1.3)
	worse := func(runs int) bool { return Of(all[:runs], Options{}).Trends[0].Worse }
	if worse(22) || !worse(23) || worse(25) || worse(26) {
		t.Errorf("worse with 22 runs: %v, with the first slow one: %v, with the third: %v, with the fourth: %v", worse(22), worse(23), worse(25), worse(26))
	}
	if h := Of(all, Options{}); len(h.Trends[0].Levels) != 2 || h.Trends[0].Levels[1].From != 22 {
		t.Errorf("%d levels, the last from %d", len(h.Trends[0].Levels), h.Trends[0].Levels[len(h.Trends[0].Levels)-1].From)
	}
	allowed := 0.4
	o := Options{}
	o.All = &allowed
	if len(Of(all[:23], o).Worse()) > 0 {
		t.Error("30 % more is beyond 40 %")
	}
}

// TestExact: counts that never vary, and events that must never happen, need no statistics.
func TestExact(t *testing.T) {
	entries := simulated(rand.New(rand.NewPCG(5, 6)), 4, 0, 1)
	for i := range entries {
		rules, broken := 100.0, 0.0
		if i == 3 {
			rules, broken = 120, 1
		}
		cell := records.Cell{Scenario: "x", Services: 1}
		entries[i].Figures = []Figure{{"a/b", cell, "", *estimate.Of(comparison.FigureRules, "count", estimate.Single(rules, rules), 50)},
			{"a/b", cell, "", *estimate.Of("violations", "count", estimate.Single(broken, broken), 50)},
			{"a/b", cell, "", *estimate.Of("flows_failed", "count", estimate.Single(broken, broken), 50)}}
	}
	h := Of(entries, Options{})
	var worse []string
	for _, t := range h.Worse() {
		worse = append(worse, t.Figure)
	}
	if !slices.Equal(worse, []string{"rules", "violations"}) {
		t.Errorf("worse: %v", worse)
	}
	if worse := Of(entries[:3], Options{}).Worse(); len(worse) > 0 {
		t.Errorf("before: %+v", worse)
	}
}

// TestPoints: several runs of a version or kernel are one point, and points of versions have the order of their numbers.
func TestPoints(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	entries := simulated(random, 4, 0, 1)
	for i, kernel := range []string{"6.12.3", "6.9.1", "6.12.3", "6.18.44-vm"} {
		entries[i].Run.Versions.Kernel = kernel
		entries[i].Figures = entries[i].Figures[:2]
		entries[i].Figures[0].Subject = "kube-proxy@v1.9." + fmt.Sprint(i) + "/nftables"
		entries[i].Figures[0].Cell.Params = map[string]string{raw.KernelField: raw.HostKernel}
	}
	names := func(h *History) (out []string) {
		for _, p := range h.Points {
			out = append(out, p.Name)
		}
		return out
	}
	h := Of(entries, Options{By: ByKernel})
	if !slices.Equal(names(h), []string{"6.9.1", "6.12.3", "6.18.44-vm"}) || len(h.Points[1].Runs) != 2 {
		t.Errorf("points %+v", h.Points)
	}
	if i := slices.IndexFunc(h.Trends, func(t Trend) bool { return t.Subject == "synclab/nftables" }); len(h.Trends[i].Values) != 3 || h.Trends[i].Values[1].Repetitions() != 12 {
		t.Errorf("trend %+v", h.Trends[i])
	}
	if h.Points[1].Unlike[0].What != "kernel" {
		t.Errorf("differences %+v", h.Points[1].Unlike)
	}
	h = Of(entries, Options{By: ByKubeProxy})
	if len(h.Trends) != 1 || h.Trends[0].Subject != "kube-proxy/nftables" || len(h.Trends[0].Values) != 4 || h.Points[3].Name != "v1.9.3" {
		t.Errorf("points %+v, trends %+v", h.Points, h.Trends)
	}
}

// folders writes runs of which the last one is slower, and returns the folder of their folders.
func folders(t *testing.T, runs int) string {
	t.Helper()
	root := t.TempDir()
	for i := range runs {
		dir := filepath.Join(root, fmt.Sprint("run-", 10+i))
		y := reportstest.Churning
		y.ID, y.Reps, y.Subjects = filepath.Base(dir), 4, []reportstest.Subject{reportstest.Legacy}
		if i == runs-1 {
			y.Subjects[0].Base *= 2
		}
		y.Noise = uint64(i)
		y.Write(t, dir)
		reportstest.EditRun(t, dir, func(r *raw.Run) {
			r.Started = r.Started.AddDate(0, 0, i)
			if i == runs-1 {
				r.Versions.Synclab = "v0.2.0"
			}
		})
	}
	return root
}

// TestFiles: folders of runs and a history file that was appended to are the same history, and its page shows it.
func TestFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	root := folders(t, 8)
	file := filepath.Join(t.TempDir(), "history.jsonl")
	if err := Check(file); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		if err := Append(file, filepath.Join(root, fmt.Sprint("run-", 10+i))); err != nil {
			t.Fatal(err)
		}
	}
	history := func(paths ...string) *History {
		t.Helper()
		entries, leftOut, err := Read(paths)
		if err != nil || len(leftOut) > 0 {
			t.Fatal(err, leftOut)
		}
		return Of(entries, Options{})
	}
	h := history(root)
	a, _ := json.Marshal(h)
	if b, _ := json.Marshal(history(file, filepath.Join(root, "run-12"))); !bytes.Equal(a, b) {
		t.Errorf("from folders %d bytes, from the file and one folder %d", len(a), len(b))
	}
	worse := h.Worse()
	if !slices.ContainsFunc(worse, func(t Trend) bool {
		return t.Figure == comparison.FigureFull && *t.Levels[1].Ratio > 1.8 && t.Levels[1].From == 7
	}) {
		t.Errorf("worse: %+v", worse)
	}
	if slices.ContainsFunc(worse, func(t Trend) bool { return t.Figure == comparison.FigurePartial }) {
		t.Error("partial syncs are alike")
	}
	var terminal, page, markdown bytes.Buffer
	for _, err := range []error{h.Table(&terminal), h.Page(&page), h.Markdown(&markdown)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, out := range []string{terminal.String(), strings.ReplaceAll(page.String(), "\u00a0", " "), markdown.String()} {
		for _, want := range []string{"full sync from", "since run-17", "slower, new", "synclab: v0.1.0 → v0.2.0", "8 points"} {
			if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
				t.Errorf("%q is missing in:\n%s", want, out)
			}
		}
	}
	if verdict := strings.Index(page.String(), `<ul class="verdict"`); verdict < 0 || verdict > strings.Index(page.String(), `<input class="filter"`) {
		t.Error("the verdict does not come first")
	}
	if n := strings.Count(page.String(), `class="spark"`); n != len(h.Trends) {
		t.Errorf("%d sparklines of %d trends", n, len(h.Trends))
	}
	t.Run("access", func(t *testing.T) { reportstest.CheckAccess(t, page.Bytes()) })
}

// TestSummary: a summary.json has the main figures of its run.
func TestSummary(t *testing.T) {
	dir := filepath.Join(folders(t, 1), "run-10")
	if _, err := reports.Build([]string{dir}, dir, reports.Options{NoPNG: true}); err != nil {
		t.Fatal(err)
	}
	full := func(path string) Figure {
		t.Helper()
		entries, _, err := Read([]string{path})
		if err != nil {
			t.Fatal(err)
		}
		figures := entries[0].Figures
		i := slices.IndexFunc(figures, func(f Figure) bool { return f.Name == comparison.FigureFull })
		if i < 0 {
			t.Fatalf("%s: no full sync in %d figures", path, len(figures))
		}
		return figures[i]
	}
	if a, b := full(dir), full(filepath.Join(dir, "summary.json")); a.Value != b.Value || a.Cell.ID() != b.Cell.ID() || a.Subject != b.Subject {
		t.Errorf("of the folder %+v, of its summary %+v", a, b)
	}
}

// TestBadFiles: what is no history is an error with its place, and is not appended to.
func TestBadFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, _ := json.Marshal(Entry{Run: raw.Run{ID: "a", Status: raw.StatusInterrupted}})
	for _, c := range []struct{ path, want string }{
		{write("text", "hello\n"), "neither a history nor a summary.json"},
		{write("torn.jsonl", string(good)+"\n{\"run\""), "torn.jsonl:2: not a line of a history"},
		{write("interrupted.jsonl", string(good)+"\n"), "no complete run"},
		{write("several.json", `{"runs": [{}, {}]}`), "a summary of 2 runs"},
		{dir, "neither a run nor a folder of runs"},
		{filepath.Join(dir, "absent"), "no such file"},
	} {
		if _, _, err := Read([]string{c.path}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.path, err, c.want)
		}
	}
	if err := Check(filepath.Join(dir, "text")); err == nil {
		t.Error("a text file passes for a history")
	}
}
