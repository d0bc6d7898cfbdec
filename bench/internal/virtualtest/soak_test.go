package virtualtest

import (
	"flag"
	"strings"
	"testing"
	"time"

	"synclab/internal/seedstest"
)

var (
	hoursFlag    = flag.Float64("hours", 0.5, "how long each proxier runs, in virtual time")
	minimizeFlag = flag.Duration("minimize", time.Minute, "real time to look for fewer actions that violate the same property")
)

// The proxiers of some seeds keep all properties in spite of faults.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	length := time.Duration(*hoursFlag * float64(time.Hour))
	for _, seed := range seedstest.Several(t, 6) {
		began := time.Now()
		r, err := Run(t, seed, length)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		t.Logf("seed %d: %s: %v in %v, %d changes, %d faults, %d killed, %d calms, %d looks, syncs: %d full, %d partial, %d failed; %s",
			seed, r.Setting, r.Lived.Round(time.Second), time.Since(began).Round(time.Millisecond), r.Changes, r.Faults, r.Killed,
			r.Calms, r.Looks, r.Full, r.Partial, r.Failed, r.Digest)
		v := r.Violation
		if v == nil {
			continue
		}
		t.Errorf("seed %d: %s, after %v, at action %d:\n%s\nbefore:\n  %s\nreplay: go test ./bench/internal/virtualtest -run TestSoak -seed %d -seeds 1 -hours %g",
			seed, v.Invariant, v.At, v.Action, v.Detail, strings.Join(v.Recent[max(0, len(v.Recent)-25):], "\n  "), seed, *hoursFlag)
		fewer, err := Minimize(t, seed, length, v, *minimizeFlag)
		if err != nil {
			t.Error(err)
		}
		at := time.Duration(0)
		for _, a := range fewer {
			at += a.After
			t.Logf("these are enough: %v %s", at.Round(time.Millisecond), a)
		}
	}
}

// The same seed gives the same syncs, to the nanosecond, as long as watches are not disturbed.
func TestSameSeedSameSyncs(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
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
