package reports

import (
	"bytes"
	"encoding/json"
	"flag"
	"html"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/perf/benchfmt"

	"synclab/bench/raw"
	"synclab/reports/comparison"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/front"
	"synclab/reports/reportstest"
	"synclab/reports/sections"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestSample writes sample reports into the folder SYNCLAB_SAMPLE_REPORTS, for inspection.
func TestSample(t *testing.T) {
	dir := os.Getenv("SYNCLAB_SAMPLE_REPORTS")
	if dir == "" {
		t.Skip("SYNCLAB_SAMPLE_REPORTS names no folder")
	}
	for _, y := range []reportstest.Run{
		{ID: "steady", Scenario: "steady-churn", Subjects: []reportstest.Subject{reportstest.Legacy}, Sizes: []int{10000}, Reps: 1, Churn: 1000, Probe: 300},
		{ID: "sizes", Scenario: "size-sweep", Subjects: []reportstest.Subject{reportstest.Legacy, reportstest.NFT}, Sizes: []int{100, 316, 1000, 3162, 10000}, Reps: 3, Churn: 300, Probe: 200},
		{ID: "period", Scenario: "sync-period", Subjects: []reportstest.Subject{reportstest.Legacy}, Sizes: []int{2000}, Reps: 3, Churn: 300,
			Periods: []string{"100ms", "500ms", "1s", "2s", "5s", "10s"}, Failed: 1, Status: "interrupted"},
		reportstest.Five, reportstest.FiveSizes(),
	} {
		s := buildOf(t, y, filepath.Join(dir, y.ID), Options{})
		if err := front.Terminal(os.Stdout, s); err != nil {
			t.Fatal(err)
		}
	}
	for name, y := range map[string]reportstest.Recorded{"traversal": reportstest.TraversalRun(reportstest.PacketModels, []int{100, 1000, 5000, 10000, 30000}, 2, 200),
		"disruption": reportstest.StreamRun(reportstest.StreamModels, 5000, 2, 300, 12), "faults": reportstest.FaultRun(reportstest.StreamModels, 1000, 1, 50)} {
		s := buildOf(t, y, filepath.Join(dir, name), Options{})
		if err := front.Terminal(os.Stdout, s); err != nil {
			t.Fatal(err)
		}
	}
}

var sweep = reportstest.Run{ID: "sweep", Scenario: "size-sweep", Subjects: []reportstest.Subject{reportstest.Legacy, reportstest.NFT}, Sizes: []int{100, 1000, 10000},
	Reps: 3, Churn: 60, Probe: 60}

// TestKnownStatistics recovers the parameters of the synthetic run.
func TestKnownStatistics(t *testing.T) {
	s := buildOf(t, sweep, t.TempDir(), Options{NoPNG: true})
	for _, subject := range sweep.Subjects {
		found := 0
		for _, g := range s.Growth {
			if g.Series == subject.Name && g.Metric == raw.FullSync {
				found++
				if math.Abs(g.Slope-subject.Exponent) > 0.05 || g.SlopeLow != nil || *g.SlopeRangeLow > g.Slope || *g.SlopeRangeHigh < g.Slope || g.Bends {
					t.Errorf("%s: exponent %v (%v … %v), want %v", subject.Name, g.Slope, *g.SlopeRangeLow, *g.SlopeRangeHigh, subject.Exponent)
				}
			}
		}
		for _, f := range s.Traversal {
			if f.Series == subject.Name && f.Cell.Services == 10000 {
				found++
				if math.Abs(f.Slope/subject.PerRule-1) > 0.01 || math.Abs(f.Intercept-3.07e-6) > 1e-7 || f.Empty == nil {
					t.Errorf("%s: %v a rule, intercept %v, empty %v", subject.Name, f.Slope, f.Intercept, f.Empty)
				}
			}
		}
		if found != 2 {
			t.Errorf("%s: %d fits found, want 2", subject.Name, found)
		}
	}
	for _, p := range s.Phases {
		if math.Abs(p.ToolUser/p.Total-0.55) > 0.02 || math.Abs(p.Rest/p.Total-0.07) > 0.01 {
			t.Errorf("phases %+v", p)
		}
	}
	if len(s.Phases) != 2*2*3 {
		t.Errorf("%d phase bars, want subjects × kinds × sizes = 12", len(s.Phases))
	}
	want := map[string]string{sections.ClauseFull: "observed: met up to 1,000, violated at 10,000", sections.ClauseNPL: "observed: met at all measured sizes, up to 10,000",
		sections.ClausePacket: "observed: met at all measured sizes, up to 10,000", sections.ClauseAll: "observed: met up to 1,000, violated at 10,000"}
	for _, c := range s.SLOResults {
		if c.Series == reportstest.Legacy.Name && c.Verdict != want[c.Clause] {
			t.Errorf("%s: %s, want %s", c.Clause, c.Verdict, want[c.Clause])
		}
	}
	if len(s.SLOResults) != 8 {
		t.Errorf("%d results of SLOs, want 8", len(s.SLOResults))
	}
}

// TestExponentBadges: a caveat about a fit stands at its exponent in the table, below the plot, and as ! at the end of its line.
func TestExponentBadges(t *testing.T) {
	for _, test := range []struct {
		sizes        int
		badge        string
		table, label int
	}{{2, "2 sizes only", 8, 4}, {3, "no power law", 4, 2}} { // subjects × durations: the synthetic partial syncs bend
		badge := `<a class="badge" href="#summary">! ` + test.badge + `</a>`
		y := sweep
		y.Sizes = y.Sizes[:test.sizes]
		dir := t.TempDir()
		buildOf(t, y, dir, Options{NoPNG: true})
		page := readPage(t, dir)
		drawing, err := os.ReadFile(filepath.Join(dir, "sync-vs-services.svg"))
		if err != nil {
			t.Fatal(err)
		}
		plots := 0
		for _, caption := range regexp.MustCompile(`<figcaption>.*</figcaption>`).FindAllString(page, -1) {
			plots += strings.Count(caption, badge)
		}
		table := strings.Count(page, badge) - plots
		label := len(regexp.MustCompile(`[0-9.]+ !`).FindAll(drawing, -1))
		if table != test.table || plots != 2 || label != test.label {
			t.Errorf("%d sizes: %d badges %q in the table, %d at plots, %d marks at lines; want %d, 2, %d", test.sizes, table, test.badge, plots, label, test.table, test.label)
		}
	}
}

// TestTileBadges: a badge of all subjects stands once in a tile.
func TestTileBadges(t *testing.T) {
	y := sweep
	y.Sizes, y.Status = y.Sizes[:1], "interrupted"
	dir := t.TempDir()
	buildOf(t, y, dir, Options{NoPNG: true})
	_, tile, _ := strings.Cut(readPage(t, dir), `<div class="tile">`)
	tile, _, _ = strings.Cut(tile, `<div class="tile">`)
	note, rows, _ := strings.Cut(tile, `<div class="row`)
	if strings.Count(note, "! incomplete run") != 1 || strings.Contains(rows, "! incomplete run") || strings.Count(rows, `class="named"`) != 2 {
		t.Errorf("not one badge for two subjects:\n%s", tile)
	}
}

// TestSummaryControlCharacters: a name cannot control the terminal on which summary.json is printed, and stays the same name.
func TestSummaryControlCharacters(t *testing.T) {
	want := "a\x1b\x7f\u009b日b"
	var b bytes.Buffer
	if err := writeJSON(&sections.Summary{Method: []string{want}}, &b); err != nil {
		t.Fatal(err)
	}
	var read sections.Summary
	if err := json.Unmarshal(b.Bytes(), &read); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), `"a\u001b\u007f\u009b日b"`) || read.Method[0] != want {
		t.Errorf("%q is read as %q from %q", want, read.Method, b.String())
	}
}

var rowMedians = regexp.MustCompile(`data-v="([^"]*)"`)

// TestOutputsAgree compares summary.json, the page's tables and bench.txt with one another.
func TestOutputsAgree(t *testing.T) {
	dir := t.TempDir()
	buildOf(t, sweep, dir, Options{NoPNG: true})
	var s sections.Summary
	text, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	_, numbers, _ := strings.Cut(string(page), `<section id="numbers"`)
	lines := map[string]int{} // lines of the page, by the exact values of each row
	for _, line := range strings.Split(numbers, "\n") {
		var values []string
		for _, m := range rowMedians.FindAllStringSubmatch(line, -1) {
			values = append(values, html.UnescapeString(m[1]))
		}
		lines[strings.Join(values, " ")]++
	}
	for _, r := range s.Rows {
		want := []string{strconv.Itoa(r.Cell.Services), strconv.Itoa(r.N), strconv.Itoa(r.Repetitions), doc.Exact(r.Median)}
		if r.Low != nil {
			want = append(want, doc.Exact(*r.Low))
		}
		if r.RangeLow != nil {
			want = append(want, doc.Exact(*r.RangeLow))
		}
		want = append(want, doc.Exact(r.P90), doc.Exact(r.P99), doc.Exact(r.Min), doc.Exact(r.Max))
		key := strings.Join(want, " ")
		if lines[key] == 0 {
			t.Errorf("%s %s: the page has no row %s", r.Series, r.Label(), key)
		}
		lines[key]--
	}
	compareBench(t, filepath.Join(dir, "bench.txt"), s)
}

// compareBench checks the number of repetitions in bench.txt, and the median of their medians, with the summary.
func compareBench(t *testing.T, path string, s sections.Summary) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	values := map[string][]float64{}
	reader := benchfmt.NewReader(f, path)
	for reader.Scan() {
		switch r := reader.Result().(type) {
		case *benchfmt.SyntaxError:
			t.Errorf("benchstat cannot read it: %v", r)
		case *benchfmt.Result:
			sec, ok := r.Value("sec/op")
			if !ok {
				t.Errorf("%s has no sec/op", r.Name)
			}
			values[string(r.Name)] = append(values[string(r.Name)], sec)
		}
	}
	compared := 0
	for _, k := range s.Figures {
		for name, f := range map[string]*estimate.Estimate{"FullSync": k.Figure(comparison.FigureFull), "PartialSync": k.Figure(comparison.FigurePartial), "NetworkProgrammingLatency": k.Figure(comparison.FigureNPL50)} {
			key := name + "/scenario=size-sweep/subject=" + strings.ReplaceAll(k.Series, "/", "-") +
				"/services=" + strconv.Itoa(k.Cell.Services) + "/endpoints=10"
			all := values[key]
			if len(all) != f.Repetitions() || math.Abs(estimate.Median(all)-f.Value) > 1e-9 {
				t.Errorf("%s: %d lines, %v; summary %+v", key, len(all), all, f)
			}
			compared++
		}
	}
	if compared != 18 {
		t.Errorf("%d medians compared, want 18", compared)
	}
}

// TestFiles: every referenced plot exists, no other does, and the page needs nothing from outside.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	s := buildOf(t, sweep, dir, Options{})
	var names []string
	for _, p := range s.Plots {
		names = append(names, p.Name)
		for _, file := range []string{p.SVG, p.PNG} {
			if stat, err := os.Stat(filepath.Join(dir, file)); err != nil || stat.Size() < 2000 {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	want := []string{"ratios", "compared-durations", "compared-cost", "programming-latency", "sync-vs-services", "restore-vs-services", "phases", "timeline-synclab-iptables-legacy",
		"timeline-synclab-iptables-nft", "first-packet-by-position", "first-packet-vs-services", "rules-vs-services"}
	if !slices.Equal(names, want) {
		t.Errorf("plots %v, want %v", names, want)
	}
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, loads := range []string{"src=", "@import", "url(", "<link", "fetch("} {
		if bytes.Contains(page, []byte(loads)) {
			t.Errorf("the page is not self-contained: %s", loads)
		}
	}
	if n := bytes.Count(page, []byte("<svg role")); n != len(want) {
		t.Errorf("%d plots inline, want %d", n, len(want))
	}

	// The same folder with one size only: plots versus Services are removed.
	one := sweep
	one.Sizes, one.Probe = []int{1000}, 0
	buildOf(t, one, dir, Options{NoPNG: true})
	left, err := filepath.Glob(filepath.Join(dir, "*.[ps][nv]g"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range left {
		left[i] = filepath.Base(left[i])
	}
	want = []string{"compared-cost.svg", "compared-durations.svg", "phases.svg", "programming-latency.svg", "ratios.svg", "timeline-synclab-iptables-legacy.svg", "timeline-synclab-iptables-nft.svg"}
	if !slices.Equal(left, want) {
		t.Errorf("one size: %v, want %v", left, want)
	}
}

func TestTableGolden(t *testing.T) {
	y := reportstest.Run{ID: "period", Scenario: "sync-period", Subjects: []reportstest.Subject{reportstest.Legacy, reportstest.NFT}, Sizes: []int{2000}, Reps: 2, Churn: 60,
		Periods: []string{"1s", "10s"}, Failed: 1, Status: "interrupted", Probe: 30}
	s := buildOf(t, y, t.TempDir(), Options{NoPNG: true})
	var b bytes.Buffer
	if err := front.Terminal(&b, s); err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(b.String(), "\n") {
		if utf8.RuneCountInString(line) > doc.Width {
			t.Errorf("line %d is %d wide: %s", i+1, utf8.RuneCountInString(line), line)
		}
	}
	golden(t, "table.golden", b.Bytes())
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (-update rewrites it); got:\n%s", path, got)
	}
}
