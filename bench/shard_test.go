package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"synclab/scenarios"
)

// divided are the shards of a sweep of a size and a period, with subjects that cost very different times.
func divided(t *testing.T, n int, sets ...string) []Shard {
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

// Every unit is in exactly one shard, with all its subjects in their order, and no shard has much more to do than another.
func TestDivide(t *testing.T) {
	whole := divided(t, 1)[0]
	if len(whole.Units) != whole.Total || whole.Total%4 != 0 || whole.Total < 8 {
		t.Fatalf("one shard has %d of %d units", len(whole.Units), whole.Total)
	}
	for _, n := range []int{2, 3, 7, 100} {
		var all []Unit
		least, most, longest := time.Duration(1<<62), time.Duration(0), time.Duration(0)
		for i, s := range divided(t, n) {
			if s.Shard != i+1 || s.Of != n || s.Sweep != whole.Sweep || s.Total != whole.Total {
				t.Errorf("shard %d of %d: %s, sweep %s with %d units; want sweep %s with %d", i+1, n, s, s.Sweep, s.Total, whole.Sweep, whole.Total)
			}
			if !slices.IsSortedFunc(s.Units, func(a, b Unit) int { return a.Number - b.Number }) {
				t.Errorf("shard %s does its units in another order than the sweep", s)
			}
			all = append(all, s.Units...)
			least, most = min(least, s.Guess()), max(most, s.Guess())
		}
		slices.SortFunc(all, func(a, b Unit) int { return a.Number - b.Number })
		if got, want := unitsText(all), unitsText(whole.Units); got != want {
			t.Errorf("%d shards hold\n%s\nwant\n%s", n, got, want)
		}
		for _, u := range all {
			longest = max(longest, u.Guess)
		}
		if most-least > longest {
			t.Errorf("%d shards take %v to %v, which one unit (%v at most) could even out", n, least, most, longest)
		}
	}
	if first := whole.Units[0]; strings.Join(first.Subjects, " ") != "synclab/nftables exec:mine exec:slow" || first.Rep != 1 {
		t.Errorf("the first unit is %s", unitsText(whole.Units[:1]))
	}
}

func unitsText(units []Unit) string {
	var b strings.Builder
	for _, u := range units {
		fmt.Fprintf(&b, "%d %s rep %d %s %d passes\n", u.Number, u.Cell(), u.Rep, u.Subjects, len(u.passes))
	}
	return b.String()
}

// What is measured differs: another sweep.
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

// Subjects that targets name once are in the first repetition only, which is longer for it.
func TestDivideTargets(t *testing.T) {
	s, err := scenarios.Load("engine", nil, scenarios.Sizes{Services: 5000})
	if err != nil {
		t.Fatal(err)
	}
	o := ExecuteOptions{Scenario: s, Reps: 2, Shards: 4}
	for _, name := range []string{"synclab/iptables-nft", "kube-proxy/iptables-nft", "synclab/nftables"} {
		about, err := ParseSubject(name)
		if err != nil {
			t.Fatal(err)
		}
		o.Subjects, o.parsed = append(o.Subjects, name), append(o.parsed, about)
	}
	shards, err := o.divide()
	if err != nil {
		t.Fatal(err)
	}
	var slow []Unit
	for _, shard := range shards {
		for _, u := range shard.Units {
			if slices.Contains(u.Subjects, "kube-proxy/iptables-nft") && u.Services == 5000 {
				slow = append(slow, u)
				if len(shard.Units) > 1 {
					t.Errorf("shard %s has more to do than the longest unit (%v)", shard, u.Guess)
				}
			}
		}
	}
	if len(slow) != 1 || slow[0].Rep != 1 {
		t.Errorf("kube-proxy/iptables-nft at 5,000 Services: %s; want it once", unitsText(slow))
	}
}

// A shard that is complete is not run again; one that broke off is, and one of another sweep is not replaced.
func TestShardAgain(t *testing.T) {
	tr := newTrial(t, "cold-start", 5)
	tr.options.Subjects, tr.options.Reps = []string{"synclab/nftables"}, 2
	sweep := tr.options.Out
	tr.options.Shard, tr.options.Shards = 2, 2
	run := func(change func(*ExecuteOptions)) (Run, []Record, error) {
		o := tr.options
		if change != nil {
			change(&o)
		}
		_, err := Execute(t.Context(), o)
		got, records, readErr := ReadRun(filepath.Join(sweep, "shard-2-of-2"))
		if readErr != nil {
			t.Fatalf("%v, %v\n%s", err, readErr, tr.stderr.String())
		}
		return got, records, err
	}
	first, records, err := run(nil)
	if err != nil || first.Status != StatusComplete || first.Shard == nil || first.Shard.Shard != 2 || first.Shard.Total != 2 {
		t.Fatalf("%v, status %s, shard %+v", err, first.Status, first.Shard)
	}
	for _, r := range records {
		if r.Rep != 2 {
			t.Fatalf("the second shard measured repetition %d", r.Rep)
		}
	}
	if again, _, err := run(nil); !errors.Is(err, ErrShardComplete) || !again.Started.Equal(first.Started) {
		t.Errorf("complete: %v, started %v and %v; want it left alone", err, first.Started, again.Started)
	}
	if again, _, err := run(func(o *ExecuteOptions) { o.Force = true }); err != nil || again.Started.Equal(first.Started) {
		t.Errorf("force: %v, started %v", err, again.Started)
	}
	first.Status = StatusRunning // as a lab leaves it that was killed
	if err := writeRun(filepath.Join(sweep, "shard-2-of-2"), first); err != nil {
		t.Fatal(err)
	}
	if again, _, err := run(nil); err != nil || again.Status != StatusComplete || again.Started.Equal(first.Started) {
		t.Errorf("after a kill: %v, status %s, started %v", err, again.Status, again.Started)
	}
	if _, _, err := run(func(o *ExecuteOptions) { o.Reps = 4 }); err == nil || !strings.Contains(err.Error(), "shard 2/2 of another sweep") {
		t.Errorf("another sweep: %v", err)
	}
	if _, _, err := run(func(o *ExecuteOptions) { o.Shard = 3 }); err == nil || !strings.Contains(err.Error(), "want 1 to 2") {
		t.Errorf("shard 3 of 2: %v", err)
	}
}

// A shard is refused before anything is measured where no report could be made of it and of what is there.
func TestShardBesideOthers(t *testing.T) {
	for _, c := range []struct {
		name  string
		there Shard
		force bool
		want  string // part of the error; empty: none
	}{
		{name: "the same sweep", there: Shard{Shard: 1, Of: 3, Sweep: "a"}},
		{name: "divided differently", there: Shard{Shard: 1, Of: 2, Sweep: "a"}, want: "of a division into 2 shards, not 3"},
		{name: "divided differently, force", there: Shard{Shard: 1, Of: 2, Sweep: "a"}, force: true, want: "shard-*-of-2"},
		{name: "another sweep", there: Shard{Shard: 1, Of: 3, Sweep: "b"}, want: "is a shard of another sweep (b, this one is a)"},
		{name: "another sweep, force", there: Shard{Shard: 1, Of: 3, Sweep: "b"}, force: true},
		{name: "the own folder", there: Shard{Shard: 3, Of: 3, Sweep: "b"}}, // takeShard looks at it
	} {
		sweep := t.TempDir()
		writeShard(t, sweep, c.there)
		err := Shard{Shard: 3, Of: 3, Sweep: "a"}.beside(sweep, c.force)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
	}
}

// writeShard makes the folder of a shard that is complete.
func writeShard(t *testing.T, sweep string, s Shard) string {
	t.Helper()
	dir := s.folder(sweep)
	if err := errors.Join(os.MkdirAll(dir, 0o755), writeRun(dir, Run{Status: StatusComplete, Shard: &s})); err != nil {
		t.Fatal(err)
	}
	return dir
}

// What stands in the way of a report is named by its folders: those of the division of which less is there.
func TestOneDivision(t *testing.T) {
	sweep := t.TempDir()
	shard := func(i, of, units int, name string) string {
		return writeShard(t, sweep, Shard{Shard: i, Of: of, Sweep: name, Units: make([]Unit, units)})
	}
	first, second, third := shard(1, 2, 6, "a"), shard(2, 2, 5, "a"), shard(3, 3, 4, "a")
	for _, c := range []struct {
		name    string
		folders []string
		want    string
	}{
		{"one division", []string{first, second}, ""},
		{"one shard too many", []string{first, second, third}, "into 2 has most of what was measured, so remove " + third},
		{"no shards", []string{sweep, filepath.Join(sweep, "none")}, ""},
		{"other sweeps, side by side", []string{first, shard(4, 5, 1, "b")}, ""},
	} {
		err := OneDivision(c.folders)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasSuffix(err.Error(), c.want)) {
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
	}
}
