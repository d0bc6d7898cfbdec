package bench

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/scenarios"
)

// divided returns the shards of a sweep over sizes and periods, with subjects of very different costs.
func divided(t *testing.T, n int, sets ...string) []raw.Shard {
	t.Helper()
	s, err := scenarios.Load("size-sweep", append(quick[:len(quick):len(quick)], sets...), scenarios.Sizes{Services: 5000, Endpoints: 10})
	if err != nil {
		t.Fatal(err)
	}
	shards, err := Divide(ExecuteOptions{Scenario: s, Reps: 4, Shards: n,
		Subjects: []string{"synclab/nftables", "exec:mine=/bin/mine --fast", "exec:slow=/bin/slow"}})
	if err != nil {
		t.Fatal(err)
	}
	return shards
}

// Every unit is in exactly one shard, with all its subjects in order, and the shards' weights are balanced.
func TestDivide(t *testing.T) {
	whole := divided(t, 1)[0]
	if len(whole.Units) != whole.Total || whole.Total%4 != 0 || whole.Total < 8 {
		t.Fatalf("one shard has %d of %d units", len(whole.Units), whole.Total)
	}
	for _, n := range []int{2, 3, 7, 100} {
		var all []raw.Unit
		least, most, heaviest := math.MaxInt, 0, 0
		for i, s := range divided(t, n) {
			if s.Shard != i+1 || s.Of != n || s.Sweep != whole.Sweep || s.Total != whole.Total {
				t.Errorf("shard %d of %d: %s, sweep %s with %d units; want sweep %s with %d", i+1, n, s, s.Sweep, s.Total, whole.Sweep, whole.Total)
			}
			if !slices.IsSortedFunc(s.Units, func(a, b raw.Unit) int { return a.Number - b.Number }) {
				t.Errorf("shard %s does its units in another order than the sweep", s)
			}
			all = append(all, s.Units...)
			weight := 0
			for _, u := range s.Units {
				weight += unitWeight(u)
				heaviest = max(heaviest, unitWeight(u))
			}
			least, most = min(least, weight), max(most, weight)
		}
		slices.SortFunc(all, func(a, b raw.Unit) int { return a.Number - b.Number })
		if got, want := unitsText(all), unitsText(whole.Units); got != want {
			t.Errorf("%d shards hold\n%s\nwant\n%s", n, got, want)
		}
		if most-least > heaviest {
			t.Errorf("%d shards weigh %d to %d, which one unit (%d at most) could even out", n, least, most, heaviest)
		}
	}
	if first := whole.Units[0]; len(first.Subjects) != 3 || first.Rep != 1 {
		t.Errorf("the first unit is %s", unitsText(whole.Units[:1]))
	}
}

func unitsText(units []raw.Unit) string {
	var b strings.Builder
	for _, u := range units {
		fmt.Fprintf(&b, "%d %s rep %d %s\n", u.Number, u.Cell(), u.Rep, u.Subjects)
	}
	return b.String()
}

// A change of what is measured makes another sweep.
func TestSweepDigest(t *testing.T) {
	digest := divided(t, 3)[0].Sweep
	if again := divided(t, 5)[4].Sweep; again != digest {
		t.Errorf("the digest depends on the number of shards: %s, %s", digest, again)
	}
	for _, set := range []string{"seed=8", "steps.churn.events=7", "shape.families=[IPv6]"} {
		if other := divided(t, 3, set)[0].Sweep; other == digest {
			t.Errorf("--set %s makes the same digest %s", set, other)
		}
	}
}

// Subjects that targets measure only once are in the first repetition only.
func TestDivideTargets(t *testing.T) {
	s, err := scenarios.Load("engine", nil, scenarios.Sizes{Services: 5000})
	if err != nil {
		t.Fatal(err)
	}
	o := ExecuteOptions{Scenario: s, Reps: 2, Shards: 4}
	for _, name := range []string{"synclab/iptables-nft", "kube-proxy/iptables-nft", "synclab/nftables"} {
		about, err := subject.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		o.Subjects, o.parsed = append(o.Subjects, name), append(o.parsed, about)
	}
	shards, err := o.divide()
	if err != nil {
		t.Fatal(err)
	}
	var slow []raw.Unit
	for _, shard := range shards {
		for _, u := range shard.Units {
			if slices.Contains(u.Subjects, "kube-proxy/iptables-nft") && u.Services == 5000 {
				slow = append(slow, u)
			}
		}
	}
	if len(slow) != 1 || slow[0].Rep != 1 {
		t.Errorf("kube-proxy/iptables-nft at 5,000 Services: %s; want it once", unitsText(slow))
	}
}

// A complete shard is not run again. An incomplete one is. A shard of another sweep is not replaced.
func TestShardAgain(t *testing.T) {
	tr := newTrial(t, "cold-start", 5)
	tr.options.Subjects, tr.options.Reps = []string{"synclab/nftables"}, 2
	sweep := tr.options.Out
	tr.options.Shard, tr.options.Shards = 2, 2
	run := func(change func(*ExecuteOptions)) (raw.Run, []raw.Record, error) {
		o := tr.options
		if change != nil {
			change(&o)
		}
		_, err := Execute(t.Context(), o)
		got, records, readErr := raw.ReadRun(filepath.Join(sweep, "shard-2-of-2"))
		if readErr != nil {
			t.Fatalf("%v, %v\n%s", err, readErr, tr.stderr.String())
		}
		return got, records, err
	}
	first, records, err := run(nil)
	if err != nil || first.Status != raw.StatusComplete || first.Shard == nil || first.Shard.Shard != 2 || first.Shard.Total != 2 {
		t.Fatalf("%v, status %s, shard %+v", err, first.Status, first.Shard)
	}
	for _, r := range records {
		if r.Rep != 2 {
			t.Fatalf("the second shard measured repetition %d", r.Rep)
		}
	}
	if again, _, err := run(nil); !errors.Is(err, ErrShardComplete) || !again.Started.Equal(first.Started) {
		t.Errorf("complete: %v, started %v and %v; want it unchanged", err, first.Started, again.Started)
	}
	if again, _, err := run(func(o *ExecuteOptions) { o.Force = true }); err != nil || again.Started.Equal(first.Started) {
		t.Errorf("force: %v, started %v", err, again.Started)
	}
	first.Status = raw.StatusRunning // the state after the lab was killed
	if err := raw.WriteRun(filepath.Join(sweep, "shard-2-of-2"), first); err != nil {
		t.Fatal(err)
	}
	if again, _, err := run(nil); err != nil || again.Status != raw.StatusComplete || again.Started.Equal(first.Started) {
		t.Errorf("after a kill: %v, status %s, started %v", err, again.Status, again.Started)
	}
	if _, _, err := run(func(o *ExecuteOptions) { o.Reps = 4 }); err == nil || !strings.Contains(err.Error(), "shard 2/2 of another sweep") {
		t.Errorf("another sweep: %v", err)
	}
	if _, _, err := run(func(o *ExecuteOptions) { o.Shard = 3 }); err == nil || !strings.Contains(err.Error(), "want 1 to 2") {
		t.Errorf("shard 3 of 2: %v", err)
	}
}

// A shard is refused before a measurement if one report could not have both it and the existing shards.
func TestShardBesideOthers(t *testing.T) {
	for _, c := range []struct {
		name  string
		there raw.Shard
		force bool
		want  string // part of the error; empty: none
	}{
		{name: "the same sweep", there: raw.Shard{Shard: 1, Of: 3, Sweep: "a"}},
		{name: "divided differently", there: raw.Shard{Shard: 1, Of: 2, Sweep: "a"}, want: "of a division into 2 shards, not 3"},
		{name: "divided differently, force", there: raw.Shard{Shard: 1, Of: 2, Sweep: "a"}, force: true, want: "shard-*-of-2"},
		{name: "another sweep", there: raw.Shard{Shard: 1, Of: 3, Sweep: "b"}, want: "is a shard of another sweep (b, this one is a)"},
		{name: "another sweep, force", there: raw.Shard{Shard: 1, Of: 3, Sweep: "b"}, force: true},
		{name: "the own folder", there: raw.Shard{Shard: 3, Of: 3, Sweep: "b"}}, // takeShard checks it
	} {
		sweep := t.TempDir()
		writeShard(t, sweep, c.there)
		err := sameSweep(raw.Shard{Shard: 3, Of: 3, Sweep: "a"}, sweep, c.force)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
	}
}

// writeShard makes the folder of a complete shard.
func writeShard(t *testing.T, sweep string, s raw.Shard) string {
	t.Helper()
	dir := shardFolder(s, sweep)
	if err := errors.Join(os.MkdirAll(dir, 0o755), raw.WriteRun(dir, raw.Run{Status: raw.StatusComplete, Shard: &s})); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The error names the folders that prevent a report: those of the divisions with fewer complete units.
func TestOneDivision(t *testing.T) {
	sweep := t.TempDir()
	shard := func(i, of, units int, name string) string {
		return writeShard(t, sweep, raw.Shard{Shard: i, Of: of, Sweep: name, Units: make([]raw.Unit, units)})
	}
	first, second, third := shard(1, 2, 6, "a"), shard(2, 2, 5, "a"), shard(3, 3, 4, "a")
	for _, c := range []struct {
		name    string
		folders []string
		want    string
	}{
		{"one division", []string{first, second}, ""},
		{"one shard too many", []string{first, second, third}, "into 2 has the most complete units, so remove " + third},
		{"no shards", []string{sweep, filepath.Join(sweep, "none")}, ""},
		{"other sweeps, side by side", []string{first, shard(4, 5, 1, "b")}, ""},
	} {
		err := raw.OneDivision(c.folders)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasSuffix(err.Error(), c.want)) {
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
	}
}
