package virtual

import (
	"flag"
	"strings"
	"testing"
	"time"

	"synclab/bench/seeds"
)

var hoursFlag = flag.Float64("hours", 0.5, "how long each proxier lives, in virtual time")

// The proxiers of some seeds live through faults and keep what they promise.
func TestSoak(t *testing.T) {
	length := time.Duration(*hoursFlag * float64(time.Hour))
	for _, seed := range seeds.Several(t, 6) {
		began := time.Now()
		r, err := Run(t, seed, length)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		t.Logf("seed %d: %s: %v in %v, %d changes, %d faults, %d killed, %d calms, %d looks, syncs: %d full, %d partial, %d failed; %s",
			seed, r.Setting, r.Lived.Round(time.Second), time.Since(began).Round(time.Millisecond), r.Changes, r.Faults, r.Killed,
			r.Calms, r.Looks, r.Full, r.Partial, r.Failed, r.Digest)
		if v := r.Violation; v != nil {
			t.Errorf("seed %d: %s, after %v, at action %d:\n%s\nbefore:\n  %s\nreplay: go test ./bench/virtual -run TestSoak -seed %d -seeds 1 -hours %g",
				seed, v.Invariant, v.At, v.Action, v.Detail, strings.Join(v.Recent[max(0, len(v.Recent)-25):], "\n  "), seed, *hoursFlag)
		}
	}
}

// The same seed makes the same syncs, to the nanosecond, as long as watches are well.
func TestSameSeedSameSyncs(t *testing.T) {
	for seed, tried := uint64(0), 0; tried < 3; seed += 5 {
		if SettingOf(seed).Watches {
			continue
		}
		tried++
		var first Report
		for i := range 2 {
			r, err := Run(t, seed, 20*time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				first = r
			} else if r.Digest != first.Digest || r.Full+r.Partial == 0 {
				t.Errorf("seed %d: %+v, and then %+v", seed, first, r)
			}
		}
	}
}
