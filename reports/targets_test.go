package reports

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"synclab/bench/raw"
	"synclab/reports/comparison"
	"synclab/reports/estimate"
	"synclab/reports/reportstest"
	"synclab/reports/sections"
	"synclab/scenarios"
)

// Each kind of target is judged by the figures of its cell. A figure that was not measured is no failure. A stopped
// subject has bounds.
func TestTargets(t *testing.T) {
	y := reportstest.FiveSizes() // synclab grows with powers of 1.2 (legacy) and 1.9 (nft); kube-proxy/iptables-nft is stopped at 8,000
	y.Targets = []scenarios.Target{
		{Figure: "full_sync", Services: 2000, Subject: reportstest.Legacy.Name, Beside: reportstest.ProxyLegacy.Name, Times: 1.5},
		{Figure: "full_sync", Services: 2000, Subject: reportstest.Legacy.Name, Beside: reportstest.ProxyLegacy.Name, Times: 1e3},
		{Figure: "full_sync", Services: 2000, Subject: reportstest.Legacy.Name, AtMost: time.Hour},
		{Figure: "full_sync", Services: 2000, Subject: reportstest.Legacy.Name, AtMost: time.Millisecond},
		{Figure: "full_sync", Services: 8000, Subject: reportstest.Legacy.Name, From: 500, Exponent: 1.5},
		{Figure: "full_sync", Services: 8000, Subject: reportstest.NFT.Name, From: 500, Exponent: 1.5},
		{Figure: "full_sync", Services: 9000, Subject: reportstest.Legacy.Name, From: 500, Exponent: 1.5},
		{Figure: "full_sync", Services: 2000, Subject: "synclab/nftables", AtMost: time.Hour}, // this subject was not selected
		{Figure: "cold_start", Services: 8000, Subject: reportstest.Legacy.Name, Beside: reportstest.ProxyNft.Name, Times: 2},
		{Figure: "cold_start", Services: 8000, Subject: reportstest.Legacy.Name, Beside: reportstest.ProxyNft.Name, Times: 1e6},
		{Figure: "cold_start", Services: 8000, Subject: reportstest.ProxyNft.Name, AtMost: 24 * time.Hour},
		{Figure: "cold_start", Services: 8000, Subject: reportstest.ProxyNft.Name, AtMost: time.Millisecond},
		{Figure: "total_peak_rss", Services: 8000, Subject: reportstest.Legacy.Name, From: 500, Exponent: 1},
		{Figure: "cold_start", Services: 8000, Subject: reportstest.ProxyNft.Name, From: 500, Exponent: 9},
		{Figure: "total_peak_rss", Services: 2000, Subject: reportstest.Legacy.Name, Beside: reportstest.ProxyLegacy.Name, Times: 100},
	}
	dir := t.TempDir()
	s := buildOf(t, y, dir, Options{NoPNG: true})
	want := []string{sections.VerdictMet, sections.VerdictMissed, sections.VerdictMet, sections.VerdictMissed, sections.VerdictMet, sections.VerdictMissed, sections.VerdictNotMeasured, sections.VerdictMet, sections.VerdictUnknown,
		sections.VerdictUnknown, sections.VerdictMissed, sections.VerdictMet, sections.VerdictNotMeasured, sections.VerdictMissed}
	if len(s.Targets) != len(want) {
		t.Fatalf("%d results, want %d", len(s.Targets), len(want))
	}
	for i, r := range s.Targets {
		if r.Verdict != want[i] {
			t.Errorf("target %d (%s): %s, want %s; reached %s", i, r.Wanted(), r.Verdict, want[i], r.ReachedText(true))
		}
	}
	if r := s.Targets[0]; math.Abs(*r.Reached - *r.Other / *r.Own) > 1e-12 || r.Low == nil || *r.Low > *r.Reached {
		t.Errorf("ratio %v of %v and %v, from %v", *r.Reached, *r.Other, *r.Own, r.Low)
	}
	terminal, markdown := outputs(t, dir, s)
	for name, text := range map[string]string{"terminal": terminal, "summary.md": markdown, "page": strings.ReplaceAll(readPage(t, dir), "&gt;", ">")} {
		for _, part := range []string{"≥ 1000×", "≤ 1 h", "missed", "unknown", "not measured", "loor"} {
			if part == "≤ 1 h" {
				part = s.Targets[2].Wanted()
			}
			if !strings.Contains(text, part) {
				t.Errorf("%s lacks %q", name, part)
			}
		}
	}
}

// A target is about the machine's own kernel, whatever the names of other kernels are.
func TestTargetsOfKernels(t *testing.T) {
	y := reportstest.FiveSizes()
	y.Sizes = []int{500, 2000}
	y.Targets = []scenarios.Target{
		{Figure: "full_sync", Services: 2000, Subject: reportstest.Legacy.Name, AtMost: time.Hour},
		{Figure: "full_sync", Services: 2000, Subject: reportstest.Legacy.Name, From: 500, Exponent: 1.5},
		{Figure: "full_sync", Services: 2000, Subject: reportstest.Legacy.Name, Beside: reportstest.ProxyLegacy.Name, Times: 1.5},
	}
	for name, kernels := range map[string][]string{"both": {"6.12", raw.HostKernel}, "a guest": {"6.12"}} {
		whole, dir := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "run")
		y.Write(t, whole)
		run, records, err := raw.ReadRun(whole)
		if err != nil {
			t.Fatal(err)
		}
		var all []raw.Record
		for _, kernel := range kernels {
			for _, r := range records {
				r.Params = map[string]string{raw.KernelField: kernel}
				if kernel != raw.HostKernel && r.Unit == "s" {
					r.Value *= float64(1000 * r.Services) // a slow machine, where all grows faster
				}
				all = append(all, r)
			}
		}
		writeRecords(t, dir, run, all)
		s, err := Build([]string{dir}, dir, Options{NoPNG: true})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{sections.VerdictMet, sections.VerdictMet, sections.VerdictMet}
		if len(kernels) == 1 {
			want = []string{sections.VerdictNotMeasured, sections.VerdictMissed, sections.VerdictMet}
		}
		for i, r := range s.Targets {
			if r.Verdict != want[i] {
				t.Errorf("%s: target %d (%s): %s, want %s; reached %s", name, i, r.Wanted(), r.Verdict, want[i], r.ReachedText(true))
			}
		}
	}
}

// The kernel floor is the least kernel time of any subject on one interface, stopped subjects excluded.
func TestFloors(t *testing.T) {
	side := func(subject string, full, kernel float64, stopped bool) comparison.Side {
		return comparison.Side{Series: subject, Subject: subject, Figures: []estimate.Estimate{
			{Name: comparison.FigureFull, Unit: "s", Value: full}, {Name: comparison.FigureFullSys, Unit: "s", Value: kernel, Stopped: stopped}}}
	}
	sides := []comparison.Side{side("synclab/iptables-legacy", 8, 0.5, false), side("synclab/iptables-legacy-tree", 1, 0.25, false),
		side("kube-proxy/iptables-nft", 40, 1, true), side("synclab/nftables", 3, 2, false), side("exec:mine", 1, 0.01, false)}
	c := comparison.CellComparison{Sides: sides, Floors: comparison.FloorsOf(sides)}
	if len(c.Floors) != 2 {
		t.Fatalf("floors %+v", c.Floors)
	}
	for i, want := range []string{"32×", "4.0×", "20×", "1.5×", "–"} {
		if got := c.TimesFloor(sides[i], comparison.FigureFull); got != want {
			t.Errorf("%s is %s above its kernel floor, want %s", sides[i].Series, got, want)
		}
	}
	// A kernel time of 0, less than a tick, is not a kernel floor.
	unknown := []comparison.Side{side("synclab/iptables-legacy", 8, 0, false), side("kube-proxy/iptables-legacy", 9, 3, false)}
	if floors := comparison.FloorsOf(unknown); len(floors) != 1 || floors[0].Value != 3 {
		t.Errorf("floors %+v", floors)
	}
	if c.Floor(sides[0], comparison.FigureFull).Series != "synclab/iptables-legacy-tree" || c.Floor(sides[0], comparison.FigurePartial) != nil {
		t.Errorf("floors %+v", c.Floors)
	}
}
