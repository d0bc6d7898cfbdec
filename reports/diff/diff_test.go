package diff

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"synclab/bench/raw"
	"synclab/reports/comparison"
	"synclab/reports/estimate"
	"synclab/reports/records"
	"synclab/reports/reportstest"
	"synclab/scenarios"
)

func compared(t *testing.T, before, after string, o Options) *Diff {
	t.Helper()
	d, err := Compare(before, after, o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *Diff) row(t *testing.T, subject, figure string) Delta {
	t.Helper()
	i := slices.IndexFunc(d.Rows, func(r Delta) bool { return r.Subject == subject && r.Figure == figure })
	if i < 0 {
		t.Fatalf("no row of %s of %s", figure, subject)
	}
	return d.Rows[i]
}

func terminalDiff(t *testing.T, d *Diff) string {
	t.Helper()
	var b bytes.Buffer
	if err := d.Table(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestAccess(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	before, after := reportstest.Pair(t, reportstest.Churning, func(y *reportstest.Run) { y.Subjects[0].Base *= 1.4 })
	var page bytes.Buffer
	if err := compared(t, before, after, Options{}).Page(&page); err != nil {
		t.Fatal(err)
	}
	reportstest.CheckAccess(t, page.Bytes())
}

// TestDiff: a slower figure is found, with its ratio, and no other figure is called slower.
func TestDiff(t *testing.T) {
	before, after := reportstest.Pair(t, reportstest.Churning, func(y *reportstest.Run) { y.Subjects[0].Base *= 1.4 })
	d := compared(t, before, after, Options{})
	full := d.row(t, reportstest.Legacy.Name, comparison.FigureFull)
	if full.Verdict != Slower || !full.Beyond || full.Low == nil || *full.Low > 1.4 || *full.High < 1.4 || *full.Low < 1.3 || *full.P > 0.001 || *full.Adjusted < *full.P ||
		full.RepetitionsBefore != 8 || full.RepetitionsAfter != 8 {
		t.Errorf("full sync %+v", full)
	}
	for _, r := range d.Rows {
		changed := r.Subject == reportstest.Legacy.Name && slices.Contains([]string{comparison.FigureFull, comparison.FigureFullSys, "restore", comparison.FigureNPL99}, r.Figure)
		if !changed && (r.Verdict == Slower || r.Verdict == Faster || r.Beyond) {
			t.Errorf("%s of %s is %s: %s", r.Figure, r.Subject, r.Verdict, r.ratioText())
		}
	}
	if rules := d.row(t, reportstest.NFT.Name, comparison.FigureRules); !rules.Exact || rules.P != nil || rules.Verdict != Same || rules.Before.Value != 23020 {
		t.Errorf("rules %+v", rules)
	}
	text := terminalDiff(t, d)
	unwrapped := strings.Join(strings.Fields(text), " ")
	for _, want := range []string{"slower, beyond 10 %", "same", "exact", "8+8", reportstest.Legacy.Name + " at 1,000 Services × 10: full sync from", "10 % more is allowed", "Benjamini-Hochberg"} {
		if !strings.Contains(unwrapped, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "warning") || strings.Contains(text, "too few") || len(d.Unlike) != 0 {
		t.Errorf("warnings about equal runs:\n%s", text)
	}

	var markdown bytes.Buffer
	if err := d.Markdown(&markdown); err != nil {
		t.Fatal(err)
	}
	open, folded, _ := strings.Cut(markdown.String(), "<details>")
	if !strings.Contains(open, "| slower, beyond 10 % |") || strings.Contains(open, "| same |") || !strings.Contains(open, "- **✗ "+reportstest.Legacy.Name) ||
		!strings.Contains(folded, "| same |") || strings.Count(folded, "</details>") != 2 {
		t.Errorf("Markdown:\n%s", markdown.String())
	}

	back := compared(t, after, before, Options{})
	if full := back.row(t, reportstest.Legacy.Name, comparison.FigureFull); full.Verdict != Faster || full.Beyond || len(back.Beyond()) > 0 {
		t.Errorf("in the other direction: %+v", full)
	}
	if _, err := json.Marshal(d); err != nil {
		t.Error(err)
	}
}

// TestDiffNoise: of pairs of equal runs, about one in twenty shows any difference, for any number of figures.
func TestDiffNoise(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	random := rand.New(rand.NewPCG(1, 2))
	const pairs = 600
	wrong, beyond := 0, 0
	for range pairs {
		d := noisyDiff(random, 20, 8, 8, 0.1, 1)
		if slices.ContainsFunc(d.Rows, func(r Delta) bool { return r.Verdict == Slower || r.Verdict == Faster }) {
			wrong++
		}
		beyond += len(d.Beyond())
	}
	if wrong > pairs*7/100 {
		t.Errorf("%d of %d pairs of equal runs differ", wrong, pairs)
	}
	if beyond > 2 {
		t.Errorf("%d figures are beyond 10 %%", beyond)
	}
	missed, loud := 0, 0
	for range pairs {
		d := noisyDiff(random, 20, 8, 8, 0.03, 1.3)
		if r := d.Rows[0]; r.Verdict != Slower || !r.Beyond {
			missed++
		}
		if d = noisyDiff(random, 20, 8, 8, 0.03, 1.1); d.Rows[0].Beyond {
			loud++
		}
	}
	if missed > 3 {
		t.Errorf("a figure that is 1.3 times slower is missed %d times in %d", missed, pairs)
	}
	if loud > pairs*6/100 {
		t.Errorf("a figure at its threshold is reported beyond it %d times in %d", loud, pairs)
	}
}

// TestRunsDiffer: two runs of the same program differ by more than their repetitions show, in each figure by some 2 %.
// Without a share for that, most pairs would show a difference.
func TestRunsDiffer(t *testing.T) {
	const pairs, figures, repetitions, between, within = 500, 15, 8, 0.02, 0.03
	wrong, by := 0, 0
	random := rand.New(rand.NewPCG(3, 4))
	for range pairs {
		d, ranks := &Diff{}, []float64{}
		for range figures {
			r := noisyRow(random, repetitions, repetitions, within, math.Exp(math.Sqrt2*between*random.NormFloat64()))
			d.Rows, ranks = append(d.Rows, r), append(ranks, estimate.RankP(r.va, r.vb))
		}
		d.judge()
		if slices.ContainsFunc(d.Rows, func(r Delta) bool { return r.Verdict == Slower || r.Verdict == Faster }) {
			wrong++
		}
		if slices.Min(estimate.Adjust(ranks)) <= estimate.Level {
			by++
		}
	}
	if share := float64(by) / pairs; share < 0.5 {
		t.Errorf("by the repetitions alone, %.0f %% of the pairs differ: the runs scatter too little for this test", 100*share)
	}
	if share := float64(wrong) / pairs; share > 0.05 {
		t.Errorf("%.1f %% of the pairs of equal runs differ", 100*share)
	} else {
		t.Logf("%.1f %% of the pairs differ; by the repetitions alone, %.1f %%", 100*share, 100*float64(by)/pairs)
	}
}

// noisyDiff has rows of log-normal noise. The first row is slower after by the given factor.
func noisyDiff(random *rand.Rand, rows, before, after int, noise, slower float64) *Diff {
	d := &Diff{}
	for i := range rows {
		times := 1.0
		if i == 0 {
			times = slower
		}
		d.Rows = append(d.Rows, noisyRow(random, before, after, noise, times))
	}
	d.judge()
	return d
}

func noisyRow(random *rand.Rand, before, after int, noise, times float64) Delta {
	threshold := DefaultThreshold
	r := Delta{Threshold: &threshold}
	for range before {
		r.va = append(r.va, math.Exp(noise*random.NormFloat64()))
	}
	for range after {
		r.vb = append(r.vb, times*math.Exp(noise*random.NormFloat64()))
	}
	r.Before, r.After = estimate.Of("x", "s", estimate.Single(r.va...), 50), estimate.Of("x", "s", estimate.Single(r.vb...), 50)
	return r
}

// TestPairs: subjects of one run are paired. What both have in common in a repetition hides no difference, and equal subjects
// differ no more often than two equal runs.
func TestPairs(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	random := rand.New(rand.NewPCG(3, 4))
	const pairs, repetitions = 600, 10
	judged := func(times float64) *Diff {
		d := &Diff{Pairs: [][2]string{{"a", "b"}}}
		for i := range 15 {
			r := noisyRow(random, repetitions, repetitions, 0.01, 1)
			r.design, r.Figure = estimate.Paired, comparison.Compared[i].Name
			for k := range r.va {
				machine := math.Exp(0.3 * random.NormFloat64())
				r.va[k] *= machine
				r.vb[k] *= machine * times
			}
			r.Before, r.After = estimate.Of("x", "s", estimate.Single(r.va...), 50), estimate.Of("x", "s", estimate.Single(r.vb...), 50)
			d.Rows = append(d.Rows, r)
		}
		d.judge()
		return d
	}
	wrong, missed, loud := 0, 0, 0
	for range pairs {
		if slices.ContainsFunc(judged(1).Rows, func(r Delta) bool { return r.Verdict == Slower || r.Verdict == Faster }) {
			wrong++
		}
		if d := judged(1.2); d.Rows[0].Verdict != Slower || len(d.Beyond()) < 14 {
			missed++
		}
		loud += len(judged(1.1).Beyond())
	}
	// Two families of figures at 5 % each.
	if wrong > pairs*10/100 || missed > 0 || loud > 15*pairs*5/100 {
		t.Errorf("of %d pairs, %d equal ones differ, %d with 20 %% more are missed; %d figures at their threshold are beyond it", pairs, wrong, missed, loud)
	}
}

// TestSubjects: of one run, two subjects are compared, by default the two that it has.
func TestSubjects(t *testing.T) {
	y := reportstest.Churning
	y.Reps = 10
	dir := filepath.Join(t.TempDir(), "run")
	y.Write(t, dir)
	first, second := y.Subjects[0].Name, y.Subjects[1].Name
	d := compared(t, dir, dir, Options{OneRun: true})
	full := d.row(t, second, comparison.FigureFull)
	if !slices.Equal(d.Pairs, [][2]string{{first, second}}) || full.P == nil || full.Low == nil || full.Verdict != Slower && full.Verdict != Faster || len(d.Absent) > 0 {
		t.Errorf("%q: %+v", d.Pairs, full)
	}
	back := compared(t, dir, dir, Options{OneRun: true, Pairs: [][2]string{{second, first}}}).row(t, first, comparison.FigureFull)
	if math.Abs(*back.Ratio**full.Ratio-1) > 1e-9 || math.Abs(*back.P-*full.P) > 1e-9 {
		t.Errorf("in the other direction %+v", back)
	}
	text := strings.Join(strings.Fields(terminalDiff(t, d)), " ")
	for _, want := range []string{"Two subjects compared", "before: " + first, "after: " + second, "a sign test on the pairs"} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "mean nothing") || strings.Contains(text, "same run") {
		t.Errorf("caveats of two runs:\n%s", text)
	}
	for _, bad := range [][2]string{{first, "none"}, {first, first}} {
		if _, err := Compare(dir, dir, Options{OneRun: true, Pairs: [][2]string{bad}}); err == nil || !strings.Contains(err.Error(), "name two of them") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestDiffTooFew: three repetitions show no difference. As many as RepetitionsNeeded show one.
func TestDiffTooFew(t *testing.T) {
	y := reportstest.Churning
	y.Reps, y.Churn, y.Probe = 3, 0, 0
	slower := func(y *reportstest.Run) { y.Subjects[0].Base *= 3 }
	before, after := reportstest.Pair(t, y, slower)
	d := compared(t, before, after, Options{})
	if full := d.row(t, reportstest.Legacy.Name, comparison.FigureFull); full.Verdict != TooFew || full.Beyond || full.Low != nil || math.Abs(*full.P-0.1) > 1e-9 {
		t.Errorf("full sync of 3 repetitions %+v", full)
	}
	if rules := d.row(t, reportstest.Legacy.Name, comparison.FigureRules); rules.Verdict != Same || !rules.Exact {
		t.Errorf("rules %+v", rules)
	}
	text := terminalDiff(t, d)
	if d.RepetitionsNeeded < 5 || d.RepetitionsNeeded > 8 || !strings.Contains(text, "too few repetitions") || !strings.Contains(text, "Too few repetitions: with") {
		t.Errorf("repetitions needed: %d\n%s", d.RepetitionsNeeded, text)
	}
	y.Reps = d.RepetitionsNeeded
	before, after = reportstest.Pair(t, y, slower)
	if d = compared(t, before, after, Options{}); d.row(t, reportstest.Legacy.Name, comparison.FigureFull).Verdict != Slower || d.RepetitionsNeeded != 0 {
		t.Errorf("with %d repetitions each: %+v", y.Reps, d.row(t, reportstest.Legacy.Name, comparison.FigureFull))
	}
	y.Reps = 1
	before, after = reportstest.Pair(t, y, slower)
	if d = compared(t, before, after, Options{}); d.row(t, reportstest.Legacy.Name, comparison.FigureFull).Verdict != TooFew || d.row(t, reportstest.Legacy.Name, comparison.FigureRules).Verdict != Same {
		t.Errorf("of one repetition: %+v", d.row(t, reportstest.Legacy.Name, comparison.FigureFull))
	}
}

// TestDiffThresholds: a figure's own threshold comes first, then that for all figures; flags come before the scenario.
func TestDiffThresholds(t *testing.T) {
	share := func(v float64) *float64 { return &v }
	y := reportstest.Churning
	y.Churn, y.Probe = 0, 0
	before, after := reportstest.Pair(t, y, func(y *reportstest.Run) { y.Subjects[0].Base *= 1.4 })
	of := func(o Options) (threshold float64, beyond bool) {
		r := compared(t, before, after, o).row(t, reportstest.Legacy.Name, comparison.FigureFull)
		if r.Verdict != Slower {
			t.Fatalf("%+v", r)
		}
		if r.Threshold == nil {
			return -1, r.Beyond
		}
		return *r.Threshold, r.Beyond
	}
	check := func(what string, o Options, want float64) {
		t.Helper()
		if threshold, beyond := of(o); threshold != want || beyond != (want >= 0 && want < 0.3) {
			t.Errorf("%s: threshold %v, beyond %v", what, threshold, beyond)
		}
	}
	check("default", Options{}, 0.1)
	check("all", Options{All: share(0.5)}, 0.5)
	check("of the figure", Options{All: share(0.5), Figures: map[string]float64{"full_sync": 0.05}}, 0.05)
	check("off", Options{Figures: map[string]float64{"full_sync": -1}}, -1)
	check("of another figure", Options{Figures: map[string]float64{"first_packet": 0.6}}, 0.1)
	reportstest.EditRun(t, after, func(r *raw.Run) { r.Scenario.Thresholds = map[string]float64{"all": 0.7} })
	check("the scenario's", Options{}, 0.7)
	check("the flag's and the scenario's", Options{All: share(0.2)}, 0.2)
	reportstest.EditRun(t, after, func(r *raw.Run) { r.Scenario.Thresholds = map[string]float64{"full_sync": 0.6} })
	check("the scenario's of the figure", Options{All: share(0.2)}, 0.6)
	if d := compared(t, before, after, Options{}); len(d.Unlike) > 0 {
		t.Errorf("different thresholds are listed as different scenarios: %+v", d.Unlike)
	}
	if _, err := Compare(before, after, Options{Figures: map[string]float64{"ful_sync": 1}}); err == nil || !strings.Contains(err.Error(), "partial_sync") {
		t.Errorf("an unknown figure: error %v", err)
	}
}

// TestDiffCounts: counts are compared exactly, each with its threshold.
func TestDiffCounts(t *testing.T) {
	y := reportstest.Churning
	y.Reps, y.Churn = 1, 0
	before, after := reportstest.Pair(t, y, func(*reportstest.Run) {})
	more := func(metric, from, to string) {
		path := filepath.Join(after, "records.jsonl")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changed := strings.ReplaceAll(string(text), `"metric":"`+metric+`","value":`+from+`,`, `"metric":"`+metric+`","value":`+to+`,`)
		if changed == string(text) {
			t.Fatalf("no %s of %s", metric, from)
		}
		if err := os.WriteFile(path, []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	more("rules_kernel", "23011", "23012")
	more("restore_bytes", "1800000", "1200000")
	d := compared(t, before, after, Options{})
	if r := d.row(t, reportstest.Legacy.Name, comparison.FigureRules); r.Verdict != Slower || !r.Exact || r.Beyond || r.verdictText() != "more, within 10 %" {
		t.Errorf("one rule more: %+v, %s", r, r.verdictText())
	}
	if r := d.row(t, reportstest.Legacy.Name, "full_sync_bytes"); r.Verdict != Faster || !r.Exact {
		t.Errorf("fewer bytes: %+v", r)
	}
	if d = compared(t, before, after, Options{Figures: map[string]float64{"rules": 0}}); !d.row(t, reportstest.Legacy.Name, comparison.FigureRules).Beyond {
		t.Error("one rule more does not exceed a threshold of 0")
	}
}

// TestDiffUnlike: the output lists the runs' differences and the cells of only one run. Runs without a common cell are
// an error.
func TestDiffUnlike(t *testing.T) {
	y := reportstest.Churning
	y.Churn, y.Probe = 0, 0
	before, after := reportstest.Pair(t, y, func(y *reportstest.Run) {
		y.Subjects = []reportstest.Subject{reportstest.Legacy, reportstest.ProxyLegacy}
		y.Sizes = []int{1000, 2000}
	})
	reportstest.EditRun(t, after, func(r *raw.Run) {
		r.Versions.Kernel, r.Versions.Synclab, r.Machine.CPUs, r.Seed, r.Feed, r.Status = "6.1.0", "v0.2.0", 8, 9, raw.FeedAPI, "interrupted"
		r.Scenario.Proxy.MinSyncPeriod = 5e9
		r.Scenario.Steps = []scenarios.Step{{Churn: &scenarios.Churn{Rate: 3}}}
	})
	d := compared(t, before, after, Options{})
	var what []string
	for _, u := range d.Unlike {
		what = append(what, u.What)
		if u.Compared != (u.What == "synclab") {
			t.Errorf("%+v", u)
		}
	}
	for _, want := range []string{"kernel", "synclab", "CPUs", "seed", "feed", "proxy.minSyncPeriod", "steps.0.churn.rate"} {
		if !slices.Contains(what, want) {
			t.Errorf("differences %v lack %s", what, want)
		}
	}
	text := terminalDiff(t, d)
	for _, want := range []string{"warning: different kernel: 6.18.0 → 6.1.0", "compared: synclab: v0.1.0 → v0.2.0", "warning: different proxy.minSyncPeriod: none → 5s",
		"warning: the run after is not complete: its status is interrupted", reportstest.NFT.Name + " · 1,000 Services × 10 endpoints · steady-churn: only before",
		reportstest.ProxyLegacy.Name + " · 2,000 Services × 10 endpoints · steady-churn: only after"} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
	if len(d.Absent) != 4 {
		t.Errorf("absent %+v", d.Absent)
	}

	before, after = reportstest.Pair(t, y, func(y *reportstest.Run) { y.Sizes = []int{500} })
	if _, err := Compare(before, after, Options{}); !errors.Is(err, ErrNothingInCommon) || !strings.Contains(err.Error(), "500 Services") {
		t.Errorf("other sizes: %v", err)
	}
	if _, err := Compare(before, t.TempDir(), Options{}); err == nil {
		t.Error("no error for a folder without a run")
	}
	if d = compared(t, before, before, Options{}); len(d.Beyond()) > 0 || !strings.Contains(strings.Join(d.Warnings, " "), "the same run") {
		t.Errorf("a run compared with itself: warnings %q", d.Warnings)
	}
}

// TestDiffStopped: a subject that no longer finishes is beyond any threshold, with any number of repetitions.
func TestDiffStopped(t *testing.T) {
	y := reportstest.Run{Scenario: "cold-start", Subjects: []reportstest.Subject{reportstest.ProxyNft}, Sizes: []int{2000}, Reps: 2, Outside: true}
	before, after := reportstest.Pair(t, y, func(y *reportstest.Run) { y.Subjects[0].Base *= 50; y.StopAt = 600 })
	d := compared(t, before, after, Options{})
	cold := d.row(t, reportstest.ProxyNft.Name, comparison.FigureCold)
	if cold.Verdict != Slower || !cold.Beyond || cold.Low != nil || !strings.HasPrefix(cold.ratioText(), "> ") {
		t.Errorf("cold start %+v, %s", cold, cold.ratioText())
	}
	if text := terminalDiff(t, d); !strings.Contains(text, "> 600 s") || !strings.Contains(text, "warning: after: "+reportstest.ProxyNft.Name) {
		t.Errorf("the table:\n%s", text)
	}
	if full := d.row(t, reportstest.ProxyNft.Name, comparison.FigureFull); full.Verdict != OnlyBefore {
		t.Errorf("full sync %+v", full)
	}
	back := compared(t, after, before, Options{})
	if cold := back.row(t, reportstest.ProxyNft.Name, comparison.FigureCold); cold.Verdict != Faster || cold.Beyond {
		t.Errorf("in the other direction: %+v", cold)
	}
}

// TestDiffFlows: each kind of packets, flows and faults has its own row.
func TestDiffFlows(t *testing.T) {
	position := 0
	write := func(dir string, misroutes int, repaired float64, never bool) {
		reportstest.Run{ID: dir, Scenario: "x", Sizes: []int{1}}.Write(t, dir)
		var lines strings.Builder
		put := func(rep int, r raw.Record) {
			r.Scenario, r.Subject, r.Services, r.Endpoints, r.Rep = "x", "a/b", 10, 1, rep
			if err := json.NewEncoder(&lines).Encode(r); err != nil {
				t.Fatal(err)
			}
		}
		for rep := range 6 {
			put(rep, raw.Record{Metric: raw.FaultDuration, Fault: "2:fault flush nat", Unit: "s"})
			gone := raw.Record{Metric: raw.FaultRepaired, Fault: "2:fault flush nat", Unit: "s", Value: repaired + float64(rep)/100}
			if never {
				gone.Error = "not in 45 s"
			}
			put(rep, gone)
			put(rep, raw.Record{Metric: raw.FirstPacket, Target: "reject", Unit: "s", Value: 5e-6 + float64(rep)*1e-8})
			put(rep, raw.Record{Metric: raw.FirstPacket, Target: "reject", Unit: "s", Value: 1, Position: &position})
			put(rep, raw.Record{Metric: raw.InvariantChecks, Unit: "count", Value: 100})
			for range 5 {
				put(rep, raw.Record{Metric: raw.Flow, Unit: "s", Value: 0.001})
			}
			put(rep, raw.Record{Metric: raw.Flow, Unit: "s", Value: 1, Outcome: "timeout"})
		}
		for range misroutes {
			put(3, raw.Record{Metric: raw.Flow, Unit: "s", Value: 0.001, Outcome: records.Misrouted, Error: "by 10.0.0.9"})
		}
		if err := os.WriteFile(filepath.Join(dir, "records.jsonl"), []byte(lines.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	before, after := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	write(before, 0, 2, false)
	write(after, 1, 45, true)
	d := compared(t, before, after, Options{})
	for figure, want := range map[string]Verdict{"flows_misrouted": Slower, "flows_failed": Same, "fault_repaired": Slower, "first_packet": Same, "flow_p50": Same, "violations": Same} {
		if r := d.row(t, "a/b", figure); r.Verdict != want || r.Beyond != (want == Slower) {
			t.Errorf("%s: %+v", r.Name(), r)
		}
	}
	if r := d.row(t, "a/b", "violations"); !r.Exact || r.P != nil {
		t.Errorf("no violations before and after need no test: %+v", r)
	}
	if r := d.row(t, "a/b", "first_packet"); r.Name() != "First packet, reject" || r.Before.Value > 1e-5 {
		t.Errorf("%s of %v", r.Name(), r.Before.Value)
	}
	if slices.ContainsFunc(d.Rows, func(r Delta) bool { return r.Figure == "syncs_failed" }) {
		t.Error("a row of failed syncs, although none failed")
	}
	back := compared(t, after, before, Options{})
	if r := back.row(t, "a/b", "flows_misrouted"); r.Verdict == Slower || r.Beyond {
		t.Errorf("fewer misrouted flows: %+v", r)
	}
}

// TestThresholdFigures: the figures of scenario thresholds are exactly those of a diff.
func TestThresholdFigures(t *testing.T) {
	faulty := &records.Samples{Records: []records.Record{{Record: &raw.Record{Metric: raw.FaultDuration, Fault: "1:fault"}}, {Record: &raw.Record{Metric: raw.ChildPeakRSS}}}}
	var names []string
	for _, f := range comparison.RunFigures(faulty) {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	want := slices.Sorted(slices.Values(scenarios.ThresholdFigures()))
	if !slices.Equal(names, want) {
		t.Errorf("figures %q\nthresholds %q", names, want)
	}
}
