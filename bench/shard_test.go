package bench

import (
	"cmp"
	"encoding/json"
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

// divided returns the shards of a run, and the passes of each.
func divided(t *testing.T, o ExecuteOptions, n int) (shards []raw.Shard, own [][]slot) {
	t.Helper()
	cells, _, err := o.cells()
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		o.Shard, o.Shards = i, n
		s, passes, err := o.divide(cells)
		if err != nil {
			t.Fatal(err)
		}
		if s.Shard != i || s.Of != n || s.Units != len(unitsOf(passes)) || s.Sweep != append(shards, s)[0].Sweep || s.Total != append(shards, s)[0].Total {
			t.Errorf("shard %d of %d: %+v with %d units", i, n, s, len(unitsOf(passes)))
		}
		shards, own = append(shards, s), append(own, passes)
	}
	return shards, own
}

// wide returns a sweep over sizes and periods, with subjects of very different costs.
func wide(t *testing.T, sets ...string) ExecuteOptions {
	t.Helper()
	s, err := scenarios.Load("size-sweep", append(quick[:len(quick):len(quick)], sets...), scenarios.Sizes{Services: 5000, Endpoints: 10})
	if err != nil {
		t.Fatal(err)
	}
	o := ExecuteOptions{Scenario: s, Reps: 4, Subjects: []string{"synclab/nftables", "exec:mine=/bin/mine --fast", "exec:slow=/bin/slow"}}
	if err := o.fill(); err != nil {
		t.Fatal(err)
	}
	return o
}

// Every unit is in exactly one shard, with all its subjects in order, and the shards' weights are balanced.
func TestDivide(t *testing.T) {
	o := wide(t)
	shards, own := divided(t, o, 1)
	whole := own[0]
	if total := shards[0].Total; shards[0].Units != total || total%4 != 0 || total < 8 {
		t.Fatalf("one shard is %+v", shards[0])
	}
	inOrder := func(a, b slot) int { return cmp.Or(a.number-b.number, a.rep-b.rep, a.turn-b.turn) }
	for _, n := range []int{2, 3, 7, 100} {
		var all []slot
		least, most, heaviest := math.MaxInt, 0, 0
		shards, own := divided(t, o, n)
		for i, passes := range own {
			if !slices.IsSortedFunc(passes, inOrder) {
				t.Errorf("shard %s does its units in another order than the sweep", shards[i])
			}
			all = append(all, passes...)
			sum := 0
			for _, unit := range unitsOf(passes) {
				sum += weight(unit)
				heaviest = max(heaviest, weight(unit))
			}
			least, most = min(least, sum), max(most, sum)
		}
		slices.SortFunc(all, inOrder)
		if got, want := passesText(all), passesText(whole); got != want {
			t.Errorf("%d shards hold\n%s\nwant\n%s", n, got, want)
		}
		if most-least > heaviest {
			t.Errorf("%d shards weigh %d to %d, which one unit (%d at most) could even out", n, least, most, heaviest)
		}
	}
	if first := unitsOf(whole)[0]; len(first) != 3 || first[0].rep != 1 {
		t.Errorf("the first unit is %s", passesText(first))
	}
}

func passesText(passes []slot) string {
	var b strings.Builder
	for _, p := range passes {
		fmt.Fprintf(&b, "cell %d rep %d %s\n", p.number, p.rep, p.subject)
	}
	return b.String()
}

// A change of what is measured makes another sweep.
func TestSweepDigest(t *testing.T) {
	digest := func(o ExecuteOptions, n int) string {
		shards, _ := divided(t, o, n)
		return shards[0].Sweep
	}
	first := digest(wide(t), 3)
	if again := digest(wide(t), 5); again != first {
		t.Errorf("the digest depends on the number of shards: %s, %s", first, again)
	}
	for _, set := range []string{"seed=8", "steps.churn.events=7", "shape.families=[IPv6]"} {
		if other := digest(wide(t, set), 3); other == first {
			t.Errorf("--set %s makes the same digest %s", set, other)
		}
	}
	more := wide(t)
	more.Reps++
	if digest(more, 3) == first {
		t.Error("another number of repetitions makes the same digest")
	}
}

// Subjects that targets measure only once are in the first repetition only.
func TestDivideTargets(t *testing.T) {
	s, err := scenarios.Load("engine", nil, scenarios.Sizes{Services: 5000})
	if err != nil {
		t.Fatal(err)
	}
	o := ExecuteOptions{Scenario: s, Reps: 2}
	for _, name := range []string{"synclab/iptables-nft", "kube-proxy/iptables-nft", "synclab/nftables"} {
		about, err := subject.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		o.Subjects, o.parsed = append(o.Subjects, name), append(o.parsed, about)
	}
	_, own := divided(t, o, 4)
	var slow []slot
	for _, p := range slices.Concat(own...) {
		if p.subject == "kube-proxy/iptables-nft" && p.cell.Scenario.Shape.Services == 5000 {
			slow = append(slow, p)
		}
	}
	if len(slow) != 1 || slow[0].rep != 1 {
		t.Errorf("kube-proxy/iptables-nft at 5,000 Services: %s; want it once", passesText(slow))
	}
}

// A complete shard is not run again. An incomplete one is. A shard of another sweep is not replaced.
func TestShardAgain(t *testing.T) {
	tr := newTrial(t, "cold-start", 5)
	tr.options.Subjects, tr.options.Reps = []string{"synclab/nftables"}, 2
	sweep := tr.options.Out
	tr.options.Shard, tr.options.Shards = 1, 2
	run := func(change func(*ExecuteOptions)) (raw.Run, []raw.Record, error) {
		o := tr.options
		if change != nil {
			change(&o)
		}
		_, err := Execute(t.Context(), o)
		got, records, readErr := raw.ReadRun(filepath.Join(sweep, "shard-1-of-2"))
		if readErr != nil {
			t.Fatalf("%v, %v\n%s", err, readErr, tr.stderr.String())
		}
		return got, records, err
	}
	first, records, err := run(nil)
	if err != nil || first.Status != raw.StatusComplete || first.Shard == nil || first.Shard.Shard != 1 || first.Shard.Units != 1 || first.Shard.Total != 2 {
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
	writeRun(t, filepath.Join(sweep, "shard-1-of-2"), first)
	if again, _, err := run(nil); err != nil || again.Status != raw.StatusComplete || again.Started.Equal(first.Started) {
		t.Errorf("after a kill: %v, status %s, started %v", err, again.Status, again.Started)
	}
	if _, _, err := run(func(o *ExecuteOptions) { o.Reps = 4 }); err == nil || !strings.Contains(err.Error(), "shard 1/2 of another sweep") {
		t.Errorf("another sweep: %v", err)
	}
	if _, _, err := run(func(o *ExecuteOptions) { o.Shard = 2 }); err == nil || !strings.Contains(err.Error(), "want 0 to 1") {
		t.Errorf("shard 2 of 2: %v", err)
	}
}

// A shard is not measured beside shards that no report can have together with it.
func TestShardBesideOthers(t *testing.T) {
	for _, c := range []struct {
		name    string
		there   raw.Shard
		force   bool
		refused bool
	}{
		{"the same sweep", raw.Shard{Shard: 0, Of: 3, Sweep: "a"}, false, false},
		{"divided differently", raw.Shard{Shard: 0, Of: 2, Sweep: "a"}, false, true},
		{"divided differently, force", raw.Shard{Shard: 0, Of: 2, Sweep: "a"}, true, true},
		{"another sweep", raw.Shard{Shard: 0, Of: 3, Sweep: "b"}, false, true},
		{"another sweep, force", raw.Shard{Shard: 0, Of: 3, Sweep: "b"}, true, false},
		{"the own folder", raw.Shard{Shard: 2, Of: 3, Sweep: "b"}, false, false}, // takeShard checks it
	} {
		sweep := t.TempDir()
		writeShard(t, sweep, c.there)
		if err := besideOthers(raw.Shard{Shard: 2, Of: 3, Sweep: "a"}, sweep, c.force); (err != nil) != c.refused {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// writeShard writes the record of a complete shard into a sweep's folder.
func writeShard(t *testing.T, sweep string, shard raw.Shard) {
	t.Helper()
	dir := shardFolder(shard, sweep)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	writeRun(t, dir, raw.Run{Status: raw.StatusComplete, Shard: &shard})
}

// writeRun replaces run.json of a folder.
func writeRun(t *testing.T, dir string, run raw.Run) {
	t.Helper()
	text, err := json.Marshal(run)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, raw.RunFile), text, 0o600); err != nil {
		t.Fatal(err)
	}
}
