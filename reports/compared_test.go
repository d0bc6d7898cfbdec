package reports

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"gonum.org/v1/plot/vg"

	"synclab/bench/raw"
	"synclab/reports/comparison"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/figure"
	"synclab/reports/front"
	"synclab/reports/records"
	"synclab/reports/reportstest"
	"synclab/reports/sections"
)

// TestFiveSubjects: every subject has a row, every ratio is that of the figures, and all outputs agree.
func TestFiveSubjects(t *testing.T) {
	dir := t.TempDir()
	y := reportstest.FiveSizes()
	s := buildOf(t, y, dir, Options{NoPNG: true})
	if len(s.Comparisons) != len(y.Sizes) {
		t.Fatalf("%d comparisons, want one a size", len(s.Comparisons))
	}
	for _, c := range s.Comparisons {
		if c.Baseline != reportstest.ProxyLegacy.Name || len(c.Sides) != 5 {
			t.Errorf("%d Services: baseline %s, %d sides", c.Cell.Services, c.Baseline, len(c.Sides))
		}
		for _, r := range c.Ratios {
			a, b := sideOf(t, c, r.A).Figure(r.Metric), sideOf(t, c, r.B).Figure(r.Metric)
			if math.Abs(r.Ratio*a.Value/b.Value-1) > 1e-12 {
				t.Errorf("%s %s / %s: %v is not %v / %v", r.Metric, r.B, r.A, r.Ratio, b.Value, a.Value)
			}
			if r.Low != nil && (*r.Low > r.Ratio || *r.High < r.Ratio) {
				t.Errorf("%s %s / %s: %v outside %v … %v", r.Metric, r.B, r.A, r.Ratio, *r.Low, *r.High)
			}
		}
		pair := c.Ratio(reportstest.NFT.Name, reportstest.ProxyNft.Name, comparison.FigureFull)
		if c.Cell.Services < 8000 && (pair == nil || pair.Against[0] != "variant" || !pair.Differs || pair.Low == nil) {
			t.Errorf("%d Services: synclab versus kube-proxy on its backend: %+v", c.Cell.Services, pair)
		}
		if both := c.Ratio(reportstest.Legacy.Name, reportstest.ProxyLegacy.Name, comparison.FigureFull); both == nil || len(both.Against) != 2 {
			t.Errorf("the baseline of the variant is also the overall one: %+v", both)
		}
	}
	outputsName(t, dir, s)
}

func sideOf(t *testing.T, c comparison.CellComparison, series string) comparison.Side {
	t.Helper()
	for _, side := range c.Sides {
		if side.Series == series {
			return side
		}
	}
	t.Fatalf("no side %s at %d Services", series, c.Cell.Services)
	return comparison.Side{}
}

// outputs returns the terminal's table and summary.md. No line is wider than a terminal.
func outputs(t *testing.T, dir string, s *sections.Summary) (terminal, markdown string) {
	t.Helper()
	var table bytes.Buffer
	if err := front.Terminal(&table, s); err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(table.String(), "\n") {
		if utf8.RuneCountInString(line) > doc.Width {
			t.Errorf("line %d is %d wide: %s", i+1, utf8.RuneCountInString(line), line)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "summary.md"))
	if err != nil {
		t.Fatal(err)
	}
	return table.String(), string(text)
}

// outputsName checks the essential content of the page, the markdown, the terminal and the JSON.
func outputsName(t *testing.T, dir string, s *sections.Summary) {
	t.Helper()
	terminal, markdown := outputs(t, dir, s)
	page := strings.NewReplacer("\u00a0", " ", "&gt;", ">", "&#43;", "+").Replace(readPage(t, dir))
	largest := s.LargestComparison()
	ratio := largest.Ratio(reportstest.NFT.Name, reportstest.ProxyNft.Name, comparison.FigureCold)
	for name, text := range map[string]string{"page": page, "summary.md": markdown, "terminal": terminal} {
		for _, want := range []string{"> 600 s", ratio.Words, "stopped after 10m0s:", largest.Ratio(reportstest.ProxyNftables.Name, reportstest.ProxyLegacy.Name, comparison.FigurePartial).Words} {
			if !strings.Contains(strings.ReplaceAll(text, "\n  ", " "), want) {
				t.Errorf("%s lacks %q", name, want)
			}
		}
		for _, subject := range reportstest.Five.Subjects {
			if !strings.Contains(text, subject.Name) {
				t.Errorf("%s lacks %s", name, subject.Name)
			}
		}
	}
	// The comparison is first, before plots and all numbers. The method names feed, shim and versions.
	before := 0
	for _, part := range []string{`id="summary"`, `id="compared"`, `id="plots"`, `id="numbers"`, `id="method"`} {
		at := strings.Index(page, part)
		if at <= before {
			t.Errorf("the page has no %s after the parts before it", part)
		}
		before = max(before, at)
	}
	for _, want := range []string{"over HTTP", "A shim in front of iptables and nft", "kube-proxy is v1.36.3"} {
		if !strings.Contains(page[strings.Index(page, `id="method"`):], want) {
			t.Errorf("the method lacks %q", want)
		}
	}
	var read sections.Summary
	text, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	if again := read.LargestComparison().Ratio(reportstest.NFT.Name, reportstest.ProxyNft.Name, comparison.FigureCold); again == nil || again.Words != ratio.Words || again.Bound != "upper" {
		t.Errorf("summary.json: %+v", again)
	}
}

// TestStoppedSubject: the subject keeps its row, its figure is a bound, and no other value is made up.
func TestStoppedSubject(t *testing.T) {
	s := buildOf(t, reportstest.FiveSizes(), t.TempDir(), Options{NoPNG: true})
	c := s.LargestComparison()
	side := sideOf(t, *c, reportstest.ProxyNft.Name)
	if cold := side.Figure(comparison.FigureCold); cold == nil || !cold.AtLeast || cold.Value != 600 || cold.Low != nil || comparison.FigureValue(cold, true) != "> 600 s" {
		t.Errorf("cold start %+v", cold)
	}
	for _, name := range []string{comparison.FigureFull, comparison.FigurePartial, comparison.FigureNPL99, comparison.FigureCPU, comparison.FigureColdCPU, comparison.FigureFirstPacket} {
		if f := side.Figure(name); f != nil {
			t.Errorf("%s of a subject that was stopped before: %+v", name, f)
		}
	}
	if !side.NotReached(comparison.FigureFull) || len(side.Exceeded) != 6 || side.Exceeded[0].Figure != comparison.FigureCold {
		t.Errorf("exceeded %+v", side.Exceeded)
	}
	if rss := side.Figure(comparison.FigureRSS); rss == nil || !rss.AtLeast {
		t.Errorf("the memory of a process that was stopped is a bound: %+v", rss)
	}
	slower := c.Ratio(reportstest.ProxyNft.Name, reportstest.ProxyLegacy.Name, comparison.FigureCold)
	if slower == nil || slower.Bound != "lower" || slower.Ratio <= 1 || slower.Low != nil || !strings.HasPrefix(slower.Words, "> ") {
		t.Errorf("ratio %+v", slower)
	}
	for _, k := range s.SLOResults {
		if k.Series == reportstest.ProxyNft.Name && k.Clause == sections.ClauseNPL && (k.MetUpTo != 2000 || k.ViolatedAt != 8000 || !k.Stopped) {
			t.Errorf("a size at which the subject was stopped counts as met: %+v", k)
		}
	}
	svg := string(plotNamed(t, s, "sync-vs-services").Markup)
	if !strings.Contains(svg, "stopped at this size: the real value is larger") {
		t.Error("the plot over sizes does not mark where the subject was stopped")
	}
	if bars := string(plotNamed(t, s, "compared-durations").Markup); !strings.Contains(bars, "&gt; 600 s") || !strings.Contains(bars, "stopped before") {
		t.Error("the bars do not show that the subject was stopped")
	}
	for _, name := range []string{"sync-vs-services", "compared-durations", "compared-cost", "programming-latency"} {
		for _, subject := range reportstest.Five.Subjects {
			if !strings.Contains(string(plotNamed(t, s, name).Markup), subject.Name) {
				t.Errorf("%s lacks %s", name, subject.Name)
			}
		}
	}
}

// TestStoppedAlone: a single subject is also shown as stopped.
func TestStoppedAlone(t *testing.T) {
	dir := t.TempDir()
	y := reportstest.FiveSizes()
	y.Subjects = []reportstest.Subject{reportstest.ProxyNft}
	s := buildOf(t, y, dir, Options{NoPNG: true})
	if len(s.Comparisons) != 0 {
		t.Errorf("a comparison of a single subject: %+v", s.Comparisons)
	}
	terminal, markdown := outputs(t, dir, s)
	for name, text := range map[string]string{"page": strings.ReplaceAll(readPage(t, dir), "&gt;", ">"), "summary.md": markdown, "terminal": terminal} {
		if !strings.Contains(text, "> 600 s") || !strings.Contains(text, "stopped after 10m0s:") {
			t.Errorf("%s does not show that the subject was stopped:\n%.600s", name, text)
		}
	}
}

func plotNamed(t *testing.T, s *sections.Summary, name string) doc.Plot {
	t.Helper()
	for _, p := range s.Plots {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no plot %s", name)
	return doc.Plot{}
}

// cellOf makes the records of one subject in one cell.
func cellOf(feed string, made ...raw.Record) *records.Samples {
	run := &records.Run{Info: raw.Run{ID: "x", Feed: feed}, Records: made}
	for i := range run.Records {
		run.Records[i].Subject, run.Records[i].Services = "a/b", 10
	}
	c := records.Collect([]*records.Run{run})
	return c.Series[0].Cells[c.Cells[0].ID()]
}

func TestExceededConcerns(t *testing.T) {
	exceeded := raw.Record{Rep: 1, Metric: raw.Exceeded, Value: 60, Unit: "s", Error: "stopped", Step: "3:churn"}
	memory := exceeded
	memory.Unit, memory.Value = "B", 2<<30
	cold := raw.Record{Rep: 1, Metric: raw.ColdStart, Value: 2, Unit: "s"}
	full := raw.Record{Rep: 1, Metric: raw.FullSync, Value: 2, Unit: "s"}
	failed := raw.Record{Rep: 1, Metric: raw.FullSync, Value: 2, Unit: "s", Error: "no"}
	for _, test := range []struct {
		name    string
		samples *records.Samples
		figure  string
	}{
		{"before its cold start", cellOf(raw.FeedAPI, exceeded), comparison.FigureCold},
		{"after its first full sync, before all is visible", cellOf(raw.FeedAPI, full, exceeded), comparison.FigureCold},
		{"among changes", cellOf(raw.FeedAPI, cold, exceeded), comparison.FigureNPL99},
		{"in process, before a full sync", cellOf(raw.FeedInformers, failed, exceeded), comparison.FigureFull},
		{"in process, among changes", cellOf("", full, exceeded), comparison.FigureNPL99},
		{"for its memory", cellOf(raw.FeedAPI, cold, memory), comparison.FigureTotalRSS},
	} {
		e := comparison.ExceededOf(test.samples)
		if len(e) != 1 || e[0].Figure != test.figure || e[0].Reached != "stopped" {
			t.Errorf("%s: %+v, want %s", test.name, e, test.figure)
		}
	}
}

// In each repetition, the memory of a subject and of its largest tool are added up. Without tools, the subject's own
// counts.
func TestTotalRSS(t *testing.T) {
	of := func(rep int, metric raw.Metric, mib float64) raw.Record {
		return raw.Record{Rep: rep, Metric: metric, Value: mib * (1 << 20), Unit: "B"}
	}
	tools := cellOf(raw.FeedAPI, of(1, raw.ChildPeakRSS, 5), of(1, raw.ChildPeakRSS, 200), of(1, raw.ChildPeakRSS, 7), of(1, raw.PeakRSS, 100),
		of(2, raw.ChildPeakRSS, 300), of(2, raw.PeakRSS, 50), of(3, raw.ChildPeakRSS, 9))
	none := cellOf(raw.FeedAPI, of(1, raw.PeakRSS, 100))
	for _, x := range []struct {
		samples *records.Samples
		want    []float64
	}{{tools, []float64{300, 350}}, {none, []float64{100}}} {
		f := comparison.FigureOf(comparison.FigureTotalRSS).Of(x.samples, comparison.SameSource{}, nil)
		var got []float64
		for _, v := range f.Values() {
			got = append(got, v/(1<<20))
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("%v MiB, want %v", got, x.want)
		}
	}
}

// TestSomeRepetitionsStopped: the median is a bound once it depends on a stopped repetition.
func TestSomeRepetitionsStopped(t *testing.T) {
	cold := func(rep int, v float64) raw.Record {
		return raw.Record{Rep: rep, Metric: raw.ColdStart, Value: v, Unit: "s"}
	}
	stop := func(rep int) raw.Record {
		return raw.Record{Rep: rep, Metric: raw.Exceeded, Value: 60, Unit: "s", Error: "stopped"}
	}
	of := func(records ...raw.Record) *estimate.Estimate {
		samples := cellOf(raw.FeedAPI, records...)
		text := comparison.FigureOf(comparison.FigureCold)
		return text.Estimate(text.Values(samples, comparison.SameSource{}), comparison.ExceededOf(samples))
	}
	if f := of(cold(1, 50), cold(2, 55), stop(3)); f.AtLeast || f.Value != 55 || f.Low != nil {
		t.Errorf("one of three: %+v", f)
	}
	if f := of(cold(1, 50), stop(2), stop(3)); !f.AtLeast || f.Value != 60 {
		t.Errorf("two of three: %+v", f)
	}
	a, b := of(cold(1, 50), cold(2, 55), stop(3)), of(cold(1, 5), cold(2, 5), cold(3, 5))
	if c, _ := comparison.Compare(a, b); c.Low != nil || !strings.Contains(c.Warning, "stopped") {
		t.Errorf("an interval although a repetition was stopped: %+v", c)
	}
}

func TestCPU(t *testing.T) {
	cpu := func(step string, v float64) raw.Record {
		return raw.Record{Rep: 1, Metric: raw.SubjectCPU, Value: v, Unit: "s", Step: step}
	}
	change := func(step string) raw.Record {
		return raw.Record{Rep: 1, Metric: raw.NetworkProgrammingLatency, Value: 1, Unit: "s", Step: step}
	}
	samples := cellOf(raw.FeedAPI, cpu("1:create", 3), cpu("2:settle", 1), cpu("3:churn", 8), cpu("4:settle", 2), cpu("5:probe", 100), cpu("6:settle", 100),
		cpu("10:rollout", 5), cpu("11:settle", 0), change("3:churn"), change("3:churn"), change("3:churn"), change("4:settle"), change("10:rollout"))
	if got := comparison.ColdCPU(samples, comparison.SameSource{})[records.Repetition{Rep: 1}]; len(got) != 1 || got[0] != 4 {
		t.Errorf("CPU of the cold start %v, want create and the settle after it", got)
	}
	if got := comparison.ChangeCPU(samples, comparison.SameSource{})[records.Repetition{Rep: 1}]; len(got) != 1 || got[0] != 3 {
		t.Errorf("CPU per change %v, want 15 s over 5 changes", got)
	}
	followed := cellOf(raw.FeedAPI, cpu("3:follow", 6), change("3:follow"), change("4:settle"), change("4:settle"))
	if got := comparison.ChangeCPU(followed, comparison.SameSource{})[records.Repetition{Rep: 1}]; len(got) != 1 || got[0] != 2 {
		t.Errorf("CPU per change of a followed cluster %v, want 6 s over 3 changes", got)
	}
	undone := change("4:settle")
	undone.Metric = raw.ChangeReverted
	if got := comparison.ChangeCPU(cellOf(raw.FeedAPI, cpu("3:churn", 8), change("3:churn"), undone), comparison.SameSource{})[records.Repetition{Rep: 1}]; len(got) != 1 || got[0] != 4 {
		t.Errorf("CPU per change %v, want 4 s: one of two changes was reverted", got)
	}
	if got := comparison.ChangeCPU(cellOf(raw.FeedAPI, cpu("3:churn", 8)), comparison.SameSource{}); len(got) != 0 {
		t.Errorf("CPU per change without a change: %v", got)
	}
}

// TestMissingFigures: a figure that a subject does not report is a dash, and the subject's row stays.
func TestMissingFigures(t *testing.T) {
	dir := t.TempDir()
	y := reportstest.Five
	y.Reps, y.Churn, y.Probe = 2, 20, 0
	y.Write(t, dir)
	path := filepath.Join(dir, "records.jsonl")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var kept []string // kube-proxy/nftables reports no syncs
	for _, line := range strings.SplitAfter(string(text), "\n") {
		if !strings.Contains(line, reportstest.ProxyNftables.Name) || !strings.Contains(line, "_sync\"") {
			kept = append(kept, line)
		}
	}
	if err := os.WriteFile(path, []byte(strings.Join(kept, "")), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := Build([]string{dir}, "", Options{NoPNG: true})
	if err != nil {
		t.Fatal(err)
	}
	c := s.LargestComparison()
	side := sideOf(t, *c, reportstest.ProxyNftables.Name)
	if side.Figure(comparison.FigureFull) != nil || side.Figure(comparison.FigureCold) == nil || side.Figure(comparison.FigureElements) == nil || side.NotReached(comparison.FigureFull) {
		t.Errorf("figures %+v", side.Figures)
	}
	if c.Ratio(reportstest.ProxyNftables.Name, reportstest.ProxyLegacy.Name, comparison.FigureFull) != nil {
		t.Error("a ratio of a figure that was not measured")
	}
	if r := c.Ratio(reportstest.ProxyNftables.Name, reportstest.ProxyLegacy.Name, comparison.FigureRules); r == nil || r.Ratio >= 1 {
		t.Errorf("rules, without elements: %+v", r)
	}
	for i := range s.Comparisons {
		table := s.SidesTable(&s.Comparisons[i])
		full := slices.IndexFunc(table.Columns, func(c doc.Column) bool { return c.Short == comparison.FigureOf(comparison.FigureFull).Short })
		if len(table.Rows) != 5 || table.Rows[4][full].Text != "–" {
			t.Errorf("rows %d, %+v", len(table.Rows), table.Rows[4])
		}
	}
	for _, p := range s.Phases {
		if reported := strings.HasPrefix(p.Series, "synclab/"); p.OwnUntold == reported {
			t.Errorf("phases %+v", p)
		}
	}
}

func TestComparedTableGolden(t *testing.T) {
	y := reportstest.Five
	y.Churn, y.Probe = 60, 20
	s := buildOf(t, y, t.TempDir(), Options{NoPNG: true})
	var b bytes.Buffer
	if err := front.Terminal(&b, s); err != nil {
		t.Fatal(err)
	}
	golden(t, "compared.golden", b.Bytes())
}

// TestLooks: a subject has the same colour on every page. Series of a page share no colour while there are enough.
func TestLooks(t *testing.T) {
	among := []string{reportstest.Legacy.Name, "exec:other", reportstest.ProxyNft.Name, reportstest.NFT.Name, reportstest.NFT.Name}
	looks := figure.GiveLooks(among)
	if figure.GiveLooks([]string{reportstest.NFT.Name})[0].Color != looks[3].Color {
		t.Error("a subject's colour depends on the other subjects")
	}
	for i, a := range looks {
		for j, b := range looks[:i] {
			if a.Color == b.Color {
				t.Errorf("%s and %s share a colour", among[i], among[j])
			}
		}
	}
}

func TestApart(t *testing.T) {
	got := figure.Apart([]vg.Length{10, 11, 12, 60, 99}, 10, 0, 100)
	for i := range got {
		if i > 0 && got[i]-got[i-1] < 10-1e-9 || got[i] < 0 || got[i] > 100 {
			t.Errorf("%v", got)
		}
	}
	if got[3] != 60 {
		t.Errorf("a label without neighbours moved: %v", got)
	}
}

// The page shows when shares of the Services were visible after the start, in a table of all cells.
func TestColdStartShares(t *testing.T) {
	s := buildOf(t, reportstest.FiveSizes(), t.TempDir(), Options{NoPNG: true})
	d := front.Document(s)
	i := slices.IndexFunc(d.Sections, func(one doc.Section) bool { return one.ID == "cold" })
	if i < 0 {
		t.Fatal("no section with the shares of a cold start")
	}
	table := slices.IndexFunc(d.Sections[i].Blocks, func(b doc.Block) bool { return b.Table != nil })
	if table < 0 {
		t.Fatalf("no table among %d blocks", len(d.Sections[i].Blocks))
	}
	for _, row := range d.Sections[i].Blocks[table].Table.Rows {
		shares := row[len(row)-len(sections.ColdShares):]
		for j := 1; j < len(shares); j++ {
			before, err := strconv.ParseFloat(shares[j-1].Value, 64)
			after, err2 := strconv.ParseFloat(shares[j].Value, 64)
			if err != nil || err2 != nil || after <= before {
				t.Errorf("%s: %s until %d %%, %s until %d %%", row[0].Text, shares[j-1].Text, sections.ColdShares[j-1], shares[j].Text, sections.ColdShares[j])
			}
		}
	}
}
