package simulator

import (
	"math/rand/v2"
	"testing"
	"time"

	"synclab/bench/seeds"
)

// The timeline gives the same counts for any interval as counting does, also after older events were dropped.
func TestTimelineCounts(t *testing.T) {
	for _, seed := range seeds.Several(t, 20) {
		rng := rand.New(rand.NewPCG(seed, 5))
		length := time.Duration(1+rng.IntN(40)) * time.Minute
		var all []Event // the present events
		source := randomSource(t, seed)
		tl := newTimeline(source, length)
		copies := randomSource(t, seed)
		head, more := copies.Next()
		for to := time.Duration(0); to < length; {
			to += time.Duration(rng.Int64N(int64(length / 3)))
			for tl.known < to {
				tl.load(to)
				for more && head.Due < length && head.Due <= tl.known {
					all = append(all, head)
					head, more = copies.Next()
				}
				checkTimeline(t, seed, rng, tl, all)
				n := rng.IntN(len(all) + 1)
				tl.drop(n)
				all = all[n:]
			}
		}
	}
}

func checkTimeline(t *testing.T, seed uint64, rng *rand.Rand, tl *timeline, all []Event) {
	t.Helper()
	if len(tl.due) != len(all) {
		t.Fatalf("seed %d: %d events up to %v, want %d", seed, len(tl.due), tl.known, len(all))
	}
	for range 60 {
		if len(all) == 0 {
			return
		}
		a := rng.IntN(len(all))
		b := a + 1 + rng.IntN(len(all)-a)
		services, changes := map[int32]bool{}, 0
		for _, e := range all[a:b] {
			services[e.Service] = true
			changes += int(e.Weight)
		}
		if got := tl.services(a, b); got != len(services) {
			t.Fatalf("seed %d: events %d to %d of %d: %d Services, want %d", seed, a, b, len(all), got, len(services))
		}
		if got := tl.changes(a, b); got != changes {
			t.Fatalf("seed %d: events %d to %d of %d: %d changes, want %d", seed, a, b, len(all), got, changes)
		}
		at := all[a].Due + time.Duration(rng.IntN(3)-1)
		by, before := 0, 0
		for _, e := range all {
			if e.Due <= at {
				by++
			}
			if e.Due < at {
				before++
			}
		}
		if tl.dueBy(at) != by || tl.dueBefore(at) != before {
			t.Fatalf("seed %d: %d due by %v and %d before, want %d and %d", seed, tl.dueBy(at), at, tl.dueBefore(at), by, before)
		}
		end := all[b-1].Due + time.Duration(rng.Int64N(int64(time.Minute)))
		c := newCounts()
		var want, got Histogram
		for _, e := range all[a:b] {
			want.Add(end - e.Due)
		}
		c.latencies(tl, a, b, end)
		c.flush(&got)
		for q := 0.0; q <= 1; q += 0.05 {
			if got.Quantile(q) != want.Quantile(q) || got.Count != want.Count {
				t.Fatalf("seed %d: %d latencies with quantile %g %v, want %d with %v", seed, got.Count, q, got.Quantile(q), want.Count, want.Quantile(q))
			}
		}
	}
}
