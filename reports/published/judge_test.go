package published

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"synclab/bench/lab/profile"
	"synclab/bench/raw"
	"synclab/reports/records"
	"synclab/reports/reportstest"
	"synclab/scenarios/published"
)

// run writes a run in which a cold start of NFT takes slower as long as one of Legacy, nearly.
func run(t *testing.T, stopAt float64) string {
	dir := filepath.Join(t.TempDir(), "run")
	fast, slow := reportstest.Legacy, reportstest.NFT
	fast.Base, fast.Exponent = 1e-3, 1
	slow.Base, slow.Exponent = 4e-3, 1
	reportstest.Run{Scenario: "cold-start", Subjects: []reportstest.Subject{fast, slow}, Sizes: []int{1000, 4000}, Reps: 6, Outside: true, StopAt: stopAt}.Write(t, dir)
	return dir
}

func TestJudge(t *testing.T) {
	place := func(name string, services int) *published.Place {
		return &published.Place{Subject: name, Services: services}
	}
	fast, slow := reportstest.Legacy.Name, reportstest.NFT.Name
	ratio := published.Expectation{Say: "ratio", Figure: "cold_start", Of: place(slow, 4000), Over: place(fast, 4000)}
	growth := published.Expectation{Say: "growth", Figure: "cold_start", Growth: true, Of: place(slow, 4000), Over: place(slow, 1000)}
	value := published.Expectation{Say: "value", Figure: "cold_start", Of: place(fast, 1000)}
	for _, c := range []struct {
		name     string
		expect   published.Expectation
		from, to float64
		stopAt   float64
		want     Verdict
	}{
		{"within", ratio, 2, 8, 0, Agrees},
		{"above", ratio, 1, 2, 0, Differs},
		{"below", ratio, 10, 0, 0, Differs},
		{"linear", growth, 0.7, 1.3, 0, Agrees},
		{"not flat", growth, -0.3, 0.3, 0, Differs},
		{"at most", value, 0, 100, 0, Agrees},
		{"a stopped one may take longer", ratio, 1, 8, 10, Undecided},
		{"and takes at least so long", ratio, 1, 0, 10, Agrees},
		{"not measured", published.Expectation{Say: "none", Figure: "cold_start", Of: place("kube-proxy/ipvs", 0)}, 1, 2, 0, Cannot},
		{"of which size?", published.Expectation{Say: "any", Figure: "cold_start", Of: place(fast, 0)}, 0, 100, 0, Cannot},
		{"no profile", published.Expectation{Say: "none", Function: "f", Kind: "full", Of: &published.Place{}}, 1, 2, 0, Cannot},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.expect.From, c.expect.To = c.from, c.to
			claim := &published.Claim{Name: "c", Title: "about", Source: "somewhere", Date: "2020", Expect: []published.Expectation{c.expect}}
			r, err := Judge(claim, run(t, c.stopAt))
			if err != nil {
				t.Fatal(err)
			}
			if r.Verdict != c.want || (r.Verdict == Cannot) != (r.Why != "") {
				t.Errorf("%+v, want %s", r, c.want)
			}
			var b bytes.Buffer
			if err := (Results{r}).Document().Markdown(&b); err != nil || !strings.Contains(b.String(), "1: "+string(c.want)) {
				t.Errorf("%v:\n%s", err, b.String())
			}
		})
	}
}

// A value is decided when its whole interval is on one side.
func TestVerdictOfInterval(t *testing.T) {
	for _, c := range []struct {
		low, high, from, to float64
		atLeast, atMost     bool
		want                Verdict
	}{
		{low: 2, high: 3, from: 1, to: 4, want: Agrees},
		{low: 2, high: 3, from: 2.5, to: 4, want: Undecided},
		{low: 2, high: 3, from: 1, to: 2.5, want: Undecided},
		{low: 2, high: 3, from: 3.5, to: 4, want: Differs},
		{low: 2, high: 3, from: 1, to: 1.5, want: Differs},
		{low: 2, high: 3, from: 2, want: Agrees},
		{low: 2, high: 3, to: 3, want: Agrees},
		{low: 2, high: 3, from: 1, to: 4, atLeast: true, want: Undecided},
		{low: 2, high: 3, from: 1, atLeast: true, want: Agrees},
		{low: 2, high: 3, from: 1, to: 1.5, atLeast: true, want: Differs},
		{low: 2, high: 3, from: 1, to: 4, atMost: true, want: Undecided},
		{low: -0.1, high: 0.1, from: -0.3, to: 0.3, want: Agrees},
	} {
		v := Value{Measured: (c.low + c.high) / 2, Low: &c.low, High: &c.high, From: c.from, To: c.to, AtLeast: c.atLeast, AtMost: c.atMost}
		if got := v.verdict(); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// A value without bounds is shown, and decides nothing: the others do.
func TestShown(t *testing.T) {
	bounded := published.Expectation{Say: "bounded", Figure: "cold_start", Of: &published.Place{Subject: reportstest.Legacy.Name, Services: 1000}, To: 100}
	shown, outside := bounded, bounded
	shown.Say, shown.To = "shown", 0
	outside.Say, outside.From = "outside", 50
	dir := run(t, 0)
	for _, c := range []struct {
		expect []published.Expectation
		want   Verdict
	}{{[]published.Expectation{shown}, Shown}, {[]published.Expectation{shown, bounded}, Agrees}, {[]published.Expectation{bounded, shown}, Agrees}, {[]published.Expectation{outside, bounded, shown}, Differs}} {
		r, err := Judge(&published.Claim{Name: "c", Expect: c.expect}, dir)
		if err != nil || r.Verdict != c.want || len(r.Values) != len(c.expect) {
			t.Errorf("%+v, %v; want %s", r, err, c.want)
		}
	}
}

// A claim about a step has the records of that step and of the settle after it only.
func TestStep(t *testing.T) {
	of := func(step string, metric raw.Metric) raw.Record {
		return raw.Record{Subject: "a/b", Rep: 1, Step: step, Metric: metric, Unit: "s"}
	}
	both := &records.Run{Records: []raw.Record{of("1:create", raw.FullSync), of("2:settle", raw.FullSync), of("3:restart", raw.SubjectCPU), of("4:settle", raw.FullSync), of("5:churn", raw.FullSync),
		of("1:create", raw.FullSync), of("4:settle", raw.FullSync)}}
	if part := inStep(both, "restart"); len(part.Records) != 3 || len(both.Records) != 7 {
		t.Errorf("%+v", part.Records)
	}
}

// A step that a stopped subject did not reach decides nothing, and is no lack of the machine.
func TestStopped(t *testing.T) {
	e := published.Expectation{Say: "restart", Step: "restart", Figure: "full_sync", Of: &published.Place{Subject: reportstest.NFT.Name, Services: 1000}}
	for to, want := range map[float64]Verdict{0: Shown, 5: Undecided} {
		e.To = to
		r, err := Judge(&published.Claim{Name: "c", Expect: []published.Expectation{e}}, run(t, 10))
		if err != nil || r.Verdict != want || len(r.Values) != 1 || !strings.Contains(r.Values[0].Say, "was stopped") || r.Values[0].measured() != "not measured" {
			t.Errorf("at most %v: %+v, %v; want %s", to, r, err, want)
		}
	}
}

// A run with several faults has a time to recover for each: the claim says which one, or gets no verdict.
func TestDetail(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	reportstest.FaultRun(reportstest.StreamModels[:1], 100, 1, 20).Write(t, dir)
	place := &published.Place{}
	for detail, want := range map[string]Verdict{"clock-step": Agrees, "": Cannot, "no such fault": Cannot} {
		claim := &published.Claim{Name: "c", Expect: []published.Expectation{{Say: "recovery", Figure: "fault_repaired", Detail: detail, Of: place, To: 100}}}
		if r, err := Judge(claim, dir); err != nil || r.Verdict != want {
			t.Errorf("%q: %+v, %v; want %s", detail, r, err, want)
		}
	}
}

// A function's share has the interval of the repetitions, as any other figure.
func TestShares(t *testing.T) {
	run := &records.Run{Dir: t.TempDir()}
	if err := os.Mkdir(filepath.Join(run.Dir, raw.ProfilesFolder), 0o755); err != nil {
		t.Fatal(err)
	}
	for rep := 1; rep <= 6; rep++ {
		at := time.Unix(100, 0)
		p := profile.New(profile.Cut{Subject: "s", PIDs: []int{1}, Windows: []profile.Window{{Kind: "full", From: at, To: at.Add(time.Second)}}})
		add := func(samples int, frame profile.Frame) {
			for range samples {
				p.Add(profile.Sample{At: at, PID: 2, Command: "nft", Stack: []profile.Frame{frame}})
			}
		}
		add(10*rep, profile.Frame{Function: "walk", Object: "[kernel.kallsyms]", Kernel: true})
		add(100-10*rep, profile.Frame{Function: "commit", Object: "[kernel.kallsyms]", Kernel: true})
		add(100, profile.Frame{Function: "parse", Object: "/usr/sbin/nft"})
		content, err := p.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		file := fmt.Sprint(rep, ".pb.gz")
		if err := os.WriteFile(filepath.Join(run.Dir, raw.ProfilesFolder, file), content, 0o644); err != nil {
			t.Fatal(err)
		}
		r := raw.Record{Scenario: "cold-start", Subject: "s", Services: 100, Endpoints: 10, Rep: rep, Unit: "count"}
		samples, syncs := r, r
		samples.Metric, samples.Value, samples.File = raw.ProfileSamples, float64(p.Samples), file
		syncs.Metric, syncs.Value, syncs.Kind = raw.ProfiledSyncs, 1, "full"
		run.Records = append(run.Records, samples, syncs)
	}
	for all, want := range map[bool][3]float64{false: {0.35, 0.1, 0.6}, true: {0.175, 0.05, 0.3}} {
		v := Value{}
		e := published.Expectation{Function: "walk", Kind: "full", All: all, Of: &published.Place{Subject: "s"}}
		if err := v.measure(&records.Collection{Runs: []*records.Run{run}}, e); err != nil {
			t.Fatal(err)
		}
		if v.Low == nil || v.High == nil || v.Repetitions != 6 {
			t.Fatalf("%+v", v)
		}
		for i, got := range []float64{v.Measured, *v.Low, *v.High} {
			if math.Abs(got-want[i]) > 1e-6 {
				t.Errorf("of all functions %v: %v, want %v", all, got, want[i])
			}
		}
	}
}
