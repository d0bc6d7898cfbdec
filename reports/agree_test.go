package reports

import (
	"encoding/json"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"synclab/reports/comparison"
	"synclab/reports/reportstest"
	"synclab/reports/sections"
)

// fixed builds the report of fixed records: three subjects and seven repetitions. Repetitions differ more than the
// values within one, and phases take longer than their sync.
func fixed(t *testing.T) (s *sections.Summary, dir string) {
	t.Helper()
	dir = t.TempDir()
	s, err := Build([]string{filepath.Join("testdata", "repetitions")}, dir, Options{NoPNG: true})
	if err != nil {
		t.Fatal(err)
	}
	return s, dir
}

// TestOneFigureEverywhere: each figure and each ratio is the same in the terminal, summary.md, the page, summary.json
// and the plots.
func TestOneFigureEverywhere(t *testing.T) {
	s, dir := fixed(t)
	terminal, markdown := outputs(t, dir, s)
	page := strings.ReplaceAll(html.UnescapeString(readPage(t, dir)), "\u00a0", " ")
	var read sections.Summary
	text, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	c := &s.Comparisons[0]
	for i, side := range c.Sides {
		for _, row := range comparison.Compared {
			name, f := row.Name, side.Figure(row.Name)
			if f == nil || !row.Brief {
				continue
			}
			full := comparison.FigureValue(f, true)
			if !strings.Contains(page, ">"+full) || !strings.Contains(markdown, full) {
				t.Errorf("%s of %s: %q is not on the page or in summary.md", name, side.Series, full)
			}
			if !strings.Contains(terminal, comparison.FigureValue(f, false)) {
				t.Errorf("%s of %s: %q is not on the terminal", name, side.Series, comparison.FigureValue(f, false))
			}
			again := read.Comparisons[0].Sides[i].Figure(name)
			if again.Value != f.Value || (again.Low == nil) != (f.Low == nil) || f.Low != nil && (*again.Low != *f.Low || *again.High != *f.High) || again.Repetitions() != 7 {
				t.Errorf("%s of %s: %+v in summary.json, %+v", name, side.Series, again, f)
			}
		}
	}
	for _, r := range c.Ratios {
		i := slices.IndexFunc(read.Comparisons[0].Ratios, func(o comparison.Comparison) bool { return o.A == r.A && o.B == r.B && o.Metric == r.Metric })
		if again := read.Comparisons[0].Ratios[i]; again.Ratio != r.Ratio || again.Words != r.Words || !r.Paired || r.Pairs != 7 {
			t.Errorf("%s: %+v in summary.json, %+v", r.Metric, again, r)
		}
		if interval := r.IntervalText(); !strings.Contains(page, r.Words) || interval != "" && !strings.Contains(page, interval) {
			t.Errorf("%s of %s versus %s: %q %q is not on the page", r.Metric, r.B, r.A, r.Words, interval)
		}
	}
	for _, side := range c.Sides {
		for _, name := range []string{comparison.FigureCold, comparison.FigureFull, comparison.FigurePartial} {
			if want := comparison.FigureValue(side.Figure(name), false); !strings.Contains(string(plotNamed(t, s, "compared-durations").Markup), want) {
				t.Errorf("the bars lack %q", want)
			}
		}
	}
}

// TestSharesAddUp: the parts add up to the whole.
func TestSharesAddUp(t *testing.T) {
	s, _ := fixed(t)
	if len(s.Phases) != 6 {
		t.Fatalf("%d phases", len(s.Phases))
	}
	for i, p := range s.Phases {
		sum := p.Plan + p.Encode + p.Jumps + p.ToolUser + p.ToolSys + p.PostSync + p.Rest
		if sum < p.Total*(1-1e-9) || sum > p.Total*(1+1e-9) {
			t.Errorf("%s, %s: parts of %v add up to %v", p.Series, p.Kind, p.Total, sum)
		}
		name := comparison.FigureFull
		if p.Kind == "partial" {
			name = comparison.FigurePartial
		}
		if f := s.Comparisons[0].Sides[i/2].Figure(name); f.Value != p.Total {
			t.Errorf("%s, %s: %v is not the sync's %v", p.Series, p.Kind, p.Total, f.Value)
		}
	}
}

// TestFixedVerdicts: a limit within the interval is unclear. With fewer repetitions, only the observed range is
// reported.
func TestFixedVerdicts(t *testing.T) {
	s, dir := fixed(t)
	for i, want := range []string{sections.VerdictMet, sections.VerdictUnclear} {
		if r := s.Targets[i]; r.Verdict != want || r.Low == nil {
			t.Errorf("target %d: %s, want %s: %s", i, r.Verdict, want, r.ReachedText(true))
		}
	}
	terminal, markdown := outputs(t, dir, s)
	golden(t, "repetitions.golden", []byte(terminal))
	golden(t, "repetitions.md.golden", []byte(markdown))

	few := t.TempDir()
	run := filepath.Join(few, "run")
	if err := os.CopyFS(run, os.DirFS(filepath.Join("testdata", "repetitions"))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(run, "records.jsonl")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, line := range strings.SplitAfter(string(text), "\n") {
		if m := regexp.MustCompile(`"rep": (\d)`).FindStringSubmatch(line); m != nil && m[1] <= "3" {
			kept = append(kept, line)
		}
	}
	if err := os.WriteFile(path, []byte(strings.Join(kept, "")), 0o644); err != nil {
		t.Fatal(err)
	}
	if s, err = Build([]string{run}, few, Options{NoPNG: true}); err != nil {
		t.Fatal(err)
	}
	for _, r := range s.Targets {
		if r.Verdict != sections.VerdictObserved || r.Low != nil {
			t.Errorf("a verdict on three repetitions: %+v", r)
		}
	}
	for _, r := range s.Comparisons[0].Ratios {
		if r.Metric != comparison.FigureRules && !r.WithinNoise && (!r.Observed || r.Differs || r.Low != nil || r.RangeLow == nil || !strings.HasPrefix(r.Words, "observed ")) {
			t.Errorf("a verdict on three repetitions: %+v", r)
		}
	}
	terminal, _ = outputs(t, few, s)
	if strings.Contains(terminal, "±") || !strings.Contains(terminal, "Medians of 3 repetitions: observed") {
		t.Errorf("three repetitions:\n%s", terminal)
	}
}

// TestImprecise: a cell needs more repetitions until the requested ratios are precise.
func TestImprecise(t *testing.T) {
	dir := filepath.Join("testdata", "repetitions")
	for share, want := range map[float64]int{0.5: 0, 0.001: 1} {
		cells, err := Imprecise(dir, share)
		if err != nil || len(cells) != want {
			t.Errorf("within %v: %v, %v", share, cells, err)
		}
	}
	y := reportstest.Churning
	y.Reps, y.Churn, y.Probe = 5, 20, 0
	few := t.TempDir()
	y.Write(t, few)
	if cells, err := Imprecise(few, 0.9); err != nil || len(cells) != 1 {
		t.Errorf("five repetitions: %v, %v", cells, err)
	}
}
