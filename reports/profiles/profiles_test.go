package profiles

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"synclab/bench/lab/profile"
	"synclab/bench/raw"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// made writes a run with one full sync at each size: the tool's "walk" takes time like the Services, the kernel's "search"
// like their square.
func made(t *testing.T, sizes ...int) *records.Run {
	t.Helper()
	run := &records.Run{Dir: t.TempDir()}
	if err := os.Mkdir(filepath.Join(run.Dir, raw.ProfilesFolder), 0o755); err != nil {
		t.Fatal(err)
	}
	for i, size := range sizes {
		at := time.Unix(100, 0)
		p := profile.New(profile.Cut{Subject: "s", PIDs: []int{1}, Windows: []profile.Window{{Kind: "full", From: at, To: at.Add(time.Second)}}})
		walk := []profile.Frame{{Function: "walk", Object: "/usr/sbin/nft"}}
		search := []profile.Frame{{Function: "search", Object: "[kernel.kallsyms]", Kernel: true}, {Function: "commit", Object: "[kernel.kallsyms]", Kernel: true}, walk[0]}
		for range size {
			p.Add(profile.Sample{At: at, PID: 2, Command: "nft", Stack: walk})
		}
		for range size * size / 100 {
			p.Add(profile.Sample{At: at, PID: 2, Command: "nft", Stack: search})
		}
		p.Add(profile.Sample{At: at.Add(time.Hour), PID: 2, Command: "nft", Stack: walk}) // after the sync
		content, err := p.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		file := string(rune('a'+i)) + ".pb.gz"
		if err := os.WriteFile(filepath.Join(run.Dir, raw.ProfilesFolder, file), content, 0o644); err != nil {
			t.Fatal(err)
		}
		r := raw.Record{Scenario: "sweep", Subject: "s", Services: size, Endpoints: 10, Rep: 1, Unit: "count"}
		samples, syncs := r, r
		samples.Metric, samples.Value, samples.File = raw.ProfileSamples, float64(p.Samples), file
		syncs.Metric, syncs.Value, syncs.Kind = raw.ProfiledSyncs, 1, "full"
		run.Records = append(run.Records, samples, syncs)
	}
	return run
}

func TestLoad(t *testing.T) {
	all, _, samples, problems := Load([]*records.Run{made(t, 100)})
	if len(problems) > 0 || len(all) != 1 || samples != 201 {
		t.Fatalf("%d profiles of %v samples, %v; want one of 201", len(all), samples, problems)
	}
	p := all[0]
	f := p.Functions[0]
	if got := p.Total.Median() * profile.Frequency; math.Abs(got-200) > 0.1 {
		t.Errorf("a sync of %v samples, want 200", got)
	}
	commit := p.Functions[len(p.Functions)-1]
	if f.Origin == "" || commit.Name != "commit" || commit.Own() != 0 || math.Abs(commit.With.Median()*profile.Frequency-100) > 0.1 {
		t.Errorf("functions %+v", p.Functions)
	}
	if share := p.Share(profile.Kernel); math.Abs(share-0.5) > 1e-6 {
		t.Errorf("kernel has a share of %v, want 0.5", share)
	}
	svg := string(p.Flame())
	for _, want := range []string{"<title>search: 50 %", "<title>nft: 100 %", `class="flame"`} {
		if !strings.Contains(svg, want) {
			t.Errorf("the flame graph lacks %q", want)
		}
	}
}

func TestGrow(t *testing.T) {
	all, _, _, problems := Load([]*records.Run{made(t, 50, 100, 200, 400)})
	growth := Grow(all)
	if len(problems) > 0 || len(growth) != 1 || growth[0].Rules < 0 {
		t.Fatalf("%+v, %v; want one growth with a ruling function", growth, problems)
	}
	g := growth[0]
	f := g.Functions[g.Rules]
	if f.Name != "search" || math.Abs(f.Law.Slope-2) > 0.01 || math.Abs(f.Share-0.8) > 1e-6 || g.RulesFrom != 200 || !g.Seen {
		t.Errorf("%s rules with exponent %v, share %v from %v (measured: %v); want search with 2, 0.8, from 200", f.Name, f.Law.Slope, f.Share, g.RulesFrom, g.Seen)
	}
	// At small sizes it does not rule yet: the fits meet at 100 Services.
	all, _, _, _ = Load([]*records.Run{made(t, 30, 60, 90)})
	if g := Grow(all)[0]; g.Seen || math.Abs(g.RulesFrom-100) > 3 {
		t.Errorf("rules from %v (measured: %v); want about 100, by the fits", g.RulesFrom, g.Seen)
	}
}

// Functions with too few samples have an exponent together: nothing of a sync is left out.
func TestGrowRest(t *testing.T) {
	run := made(t, 100, 200)
	all, _, _, _ := Load([]*records.Run{run})
	for _, p := range all { // many functions with little time each
		for i := range 100 {
			k := key{"small" + string(rune('A'+i)), "nft", profile.Tool}
			f := &Function{Name: k.name, Object: k.object, Origin: k.origin, Self: estimate.Sample{}, With: estimate.Sample{}}
			f.Self[records.Repetition{Rep: 1}] = []float64{float64(p.Cell.Services) / 100 / profile.Frequency}
			p.byKey[k] = f
			p.Functions = append(p.Functions, *f)
		}
	}
	g := Grow(all)[0]
	i := slices.IndexFunc(g.Functions, func(f FunctionGrowth) bool { return f.Name == Rest })
	if i < 0 || math.Abs(g.Functions[i].Law.Slope-1) > 0.01 || g.Shares[len(Classes)] != 0 {
		t.Errorf("%+v, shares %v; want the rest with exponent 1", g.Functions, g.Shares)
	}
}

// The document says what samples cost, which functions take the time, and which grow.
func TestDocument(t *testing.T) {
	run := made(t, 50, 100, 200, 400)
	for i := range run.Records {
		run.Records[i].Params = map[string]string{raw.ProfileField: raw.ProfileOn}
	}
	for _, size := range []int{50, 100} {
		for mode, seconds := range map[string]float64{raw.ProfileOn: 1.02, raw.ProfileOff: 1} {
			run.Records = append(run.Records, raw.Record{Scenario: "sweep", Subject: "s", Services: size, Endpoints: 10, Rep: 1, Metric: raw.ColdStart, Value: seconds, Unit: "s",
				Params: map[string]string{raw.ProfileField: mode}})
		}
	}
	r, problems := Read(records.Collect([]*records.Run{run}))
	if r == nil || len(problems) > 0 {
		t.Fatal(r, problems)
	}
	var text, page bytes.Buffer
	if err := errors.Join(r.Document("a run").Text(&text), r.Document("a run").Page(&page)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"cold start with samples is 1.020 times that without", "kernel: 80 %", "search", "80 % quadratic or more", "From 200 Services on"} {
		if !strings.Contains(strings.Join(strings.Fields(text.String()), " "), want) {
			t.Errorf("the text lacks %q:\n%s", want, text.String())
		}
	}
	if n := strings.Count(page.String(), `class="flame"`); n != 1 {
		t.Errorf("%d flame graphs on the page, want 1", n)
	}
}

func TestUnreadable(t *testing.T) {
	run := made(t, 10, 20)
	if err := os.WriteFile(filepath.Join(run.Dir, raw.ProfilesFolder, "a.pb.gz"), []byte("nonsense"), 0o644); err != nil {
		t.Fatal(err)
	}
	all, _, _, problems := Load([]*records.Run{run})
	if len(all) != 1 || len(problems) != 1 || !strings.Contains(problems[0], "a.pb.gz") {
		t.Errorf("%d profiles, problems %q; want one, and a problem that names the file", len(all), problems)
	}
}
