package reports

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"synclab/bench/raw"
	"synclab/reports/comparison"
	"synclab/reports/estimate"
	"synclab/reports/front"
	"synclab/reports/records"
	"synclab/reports/reportstest"
	"synclab/reports/sections"
	"synclab/scenarios"
)

// someModels are kube-proxy's list of rules, another list, and a tree, which the fits must distinguish.
func someModels() []reportstest.PacketModel {
	return []reportstest.PacketModel{reportstest.PacketModels[0], reportstest.PacketModels[3], reportstest.PacketModels[4]}
}

// TestPacketFits recovers the parameters of the run.
func TestPacketFits(t *testing.T) {
	s := buildOf(t, reportstest.TraversalRun(someModels(), []int{1000, 5000}, 6, 60), t.TempDir(), Options{NoPNG: true})
	if want := 3 * 2 * 4; len(s.Packets) != want {
		t.Fatalf("%d costs, want subjects × sizes × methods = %d", len(s.Packets), want)
	}
	for _, m := range someModels() {
		for _, p := range s.Packets {
			if p.Series != m.Subject || p.Cell.Services != 5000 {
				continue
			}
			wantVerdict, wantRule := "flat", m.PerRule > 0
			if m.PerRule > 0 && p.Method != "established" {
				wantVerdict = "grows"
			}
			if p.Flat == nil || p.Flat.Verdict != wantVerdict {
				t.Errorf("%s, %s: %+v, want %s", p.Series, p.Method, p.Flat, wantVerdict)
			}
			if (p.PerRule != nil) != wantRule {
				t.Errorf("%s, %s: by rules crossed %+v", p.Series, p.Method, p.PerRule)
			}
			if p.PerRule == nil || p.Method == "established" {
				continue
			}
			if f := p.PerRule; math.Abs(f.Slope/m.PerRule-1) > 0.02 || *f.SlopeLow > m.PerRule || *f.SlopeHigh < m.PerRule {
				t.Errorf("%s, %s: %v a rule (%v … %v), want %v", p.Series, p.Method, f.Slope, *f.SlopeLow, *f.SlopeHigh, m.PerRule)
			}
		}
	}
	legacy := s.PacketsOf(s.PacketCells("sendto")[0], "sendto")[0]
	if last := legacy.Spot("last"); last.Rules == nil || *last.Rules != 5007 || last.N != 360 {
		t.Errorf("last %+v", last)
	}
	if legacy.Empty == nil || math.Abs(*legacy.Empty-1.8e-6) > 1e-7 {
		t.Errorf("empty %v", legacy.Empty)
	}
	if reject := legacy.Spot("reject"); reject == nil || reject.Empty == nil || reject.N != 360 || math.Abs(*reject.Empty-1.9e-6) > 1e-7 {
		t.Errorf("a kind of destination lacks its own empty ruleset: %+v", reject)
	}
	if g := s.PacketGrowth[0]; g.Series != legacy.Series || g.Method != "sendto" || g.Flat.Verdict != "grows" || math.Abs(g.Slope/5.3e-9-1) > 0.05 {
		t.Errorf("growth %+v", g)
	}
}

// The figure of the last Service, and so each target, excludes other methods and kinds of destinations.
func TestFirstPacketTarget(t *testing.T) {
	y := reportstest.TraversalRun(someModels(), []int{1000, 5000}, 6, 20)
	y.Scenario.Targets = []scenarios.Target{
		{Figure: "first_packet", Services: 5000, Subject: "synclab/iptables-legacy-tree", Beside: "kube-proxy/iptables-legacy", Times: 5},
		{Figure: "first_packet", Services: 5000, Subject: "synclab/iptables-legacy-tree", From: 1000, Exponent: 0.05},
		{Figure: "first_packet", Services: 5000, Subject: "kube-proxy/iptables-legacy", AtMost: 10e3},
	}
	s := buildOf(t, y, t.TempDir(), Options{NoPNG: true})
	last := s.PacketsOf(s.PacketCells("sendto")[0], "sendto")
	f := s.FigureOf("traversal", 5000, "kube-proxy/iptables-legacy", "first_packet", true)
	if f == nil || f.Value != last[0].Spot("last").Median || f.N != 120 {
		t.Errorf("figure %+v, want %v", f, last[0].Spot("last").Median)
	}
	for i, want := range []string{sections.VerdictMet, sections.VerdictMet, sections.VerdictMissed} {
		if s.Targets[i].Verdict != want || s.Targets[i].Low == nil {
			t.Errorf("target %d: %+v, want %s with an interval", i, s.Targets[i], want)
		}
	}
}

func TestFlatness(t *testing.T) {
	bounds := func(slope, half float64) estimate.Fit {
		low, high := slope-half, slope+half
		return estimate.Fit{N: 11, Slope: slope, Intercept: 1, SlopeLow: &low, SlopeHigh: &high}
	}
	for _, test := range []struct {
		fit   estimate.Fit
		want  string
		words string
	}{
		{bounds(0.001, 0.002), "flat", "flat: +0.1 % (−0.1 % … +0.3 %)"},
		{bounds(0.05, 0.01), "flat", "flat: +5.0 % (+4.0 % … +6.0 %)"},
		{bounds(0.5, 0.1), "grows", "grows: +50 % (+40 % … +60 %)"},
		{bounds(4, 0.5), "grows", "grows 5.0× (4.5 … 5.5×)"},
		{bounds(-0.3, 0.1), "falls", "falls: −30 % (−40 % … −20 %)"},
		{bounds(0.1, 0.4), "unknown", "no growth shown, but up to +50 % is possible"},
		{estimate.Fit{N: 2, Slope: 3, Intercept: 1}, "observed", "observed 4.0×"},
		{bounds(1, 0.1), "grows", "grows 2.0× (1.9 … 2.1×)"},
	} {
		f := sections.FlatnessOf(test.fit, 0, 1)
		if f.Verdict != test.want || f.Words() != test.words {
			t.Errorf("%+v: %s, %q; want %s, %q", test.fit, f.Verdict, f.Words(), test.want, test.words)
		}
	}
}

// TestPacketOutputs: the section, the plots and the terminal's lines exist, and only with such records.
func TestPacketOutputs(t *testing.T) {
	dir := t.TempDir()
	s := buildOf(t, reportstest.TraversalRun(reportstest.PacketModels, []int{1000, 5000}, 1, 30), dir, Options{NoPNG: true})
	terminal, markdown := outputs(t, dir, s)
	page := readPage(t, dir)
	for _, want := range []string{`id="packets"`, "no endpoints (reject)", "load balancer, source ranges", "Per rule, and whether the position matters", "empty ruleset", "5,007"} {
		if !strings.Contains(strings.ReplaceAll(page, "\u00a0", " "), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for name, text := range map[string]string{"terminal": terminal, "summary.md": markdown} {
		if !strings.Contains(text, "5.30 ns") && !strings.Contains(text, "5.31 ns") && !strings.Contains(text, "5.29 ns") {
			t.Errorf("%s has no slope:\n%s", name, text)
		}
	}
	for _, name := range []string{"first-packet-by-position", "first-packet-vs-services", "flows-vs-services"} {
		svg := string(plotNamed(t, s, name).Markup)
		for _, m := range reportstest.PacketModels {
			if !strings.Contains(svg, m.Subject) {
				t.Errorf("%s lacks %s", name, m.Subject)
			}
		}
	}
	if svg := string(plotNamed(t, s, "first-packet-vs-services").Markup); !strings.Contains(svg, "blog, iptables p50") {
		t.Error("the published chart is not drawn")
	}
	plain := t.TempDir()
	buildOf(t, sweep, plain, Options{NoPNG: true})
	for _, id := range []string{"disruption", "faults", "invariants"} {
		if strings.Contains(readPage(t, plain), `id="`+id+`"`) {
			t.Errorf("a section %s without such records", id)
		}
	}
}

func TestPacketsGolden(t *testing.T) {
	s := buildOf(t, reportstest.TraversalRun(reportstest.PacketModels, []int{5000}, 2, 40), t.TempDir(), Options{NoPNG: true})
	var b bytes.Buffer
	if err := front.Terminal(&b, s); err != nil {
		t.Fatal(err)
	}
	golden(t, "packets.golden", b.Bytes())
}

// A run of one method only, or of single positions, still has a report.
func TestFewPackets(t *testing.T) {
	one := 1
	for name, records := range map[string][]raw.Record{
		"one position": {{Subject: "a/b", Services: 10, Rep: 1, Metric: raw.FirstPacket, Value: 3e-6, Unit: "s", Position: &one}},
		"one flow":     {{Subject: "a/b", Services: 10, Rep: 1, Metric: raw.FirstPacket, Value: 3e-6, Unit: "s", Position: &one, Method: "echo"}},
		"one kind":     {{Subject: "a/b", Services: 10, Rep: 1, Metric: raw.FirstPacket, Value: 3e-6, Unit: "s", Target: "reject"}},
	} {
		y := reportstest.Recorded{Scenario: scenarios.Scenario{Name: "x"}, Reps: 1, Records: records}
		if s := buildOf(t, y, t.TempDir(), Options{NoPNG: true}); len(s.Packets) != 1 {
			t.Errorf("%s: %+v", name, s.Packets)
		}
	}
}

// A slope whose interval contains 0 is no cost, and never a negative one.
func TestCostText(t *testing.T) {
	fit := func(low, slope, high float64) estimate.Fit {
		return estimate.Fit{Slope: slope * 1e-9, SlopeLow: new(low * 1e-9), SlopeHigh: new(high * 1e-9)}
	}
	for _, test := range []struct {
		fit  estimate.Fit
		flat *sections.Flatness
		want string
	}{
		{fit(4.1, 5.28, 6), &sections.Flatness{Verdict: "grows"}, "5.28 ns"},
		{fit(-5, -2.07, 1), &sections.Flatness{Verdict: "flat"}, "flat"},
		{fit(-1, 0.4, 2), nil, "flat"},
		{fit(-9, 3, 20), &sections.Flatness{Verdict: "unknown"}, "none shown"},
		{estimate.Fit{Slope: 3e-9}, nil, "3.00 ns"},
	} {
		if got := sections.CostText(test.fit, test.flat); got != test.want {
			t.Errorf("%+v: %q, want %q", test.fit, got, test.want)
		}
	}
}

// The legend of the key figures explains only columns that exist.
func TestLegendOfKeyFigures(t *testing.T) {
	for _, test := range []struct {
		figures []estimate.Estimate
		want    []bool // npl, first packet
	}{
		{[]estimate.Estimate{{Name: comparison.FigureFull, Value: 1, Unit: "s"}}, []bool{false, false}},
		{[]estimate.Estimate{{Name: comparison.FigureFull, Value: 1, Unit: "s"}, {Name: comparison.FigureNPL99, Value: 2, Unit: "s"}}, []bool{true, false}},
		{[]estimate.Estimate{{Name: comparison.FigureFull, Value: 1, Unit: "s"}, {Name: comparison.FigureFirstPacket, Value: 1e-6, Unit: "s"}}, []bool{false, true}},
	} {
		side := comparison.Side{Series: "synclab/nftables", Figures: test.figures}
		s := &sections.Summary{Figures: []sections.Measured{{Side: side}}, Collected: &records.Collection{}}
		terminal := terminalOf(t, s.KeySection())
		for i, text := range []string{"npl:", "packet:"} {
			if strings.Contains(terminal, text) != test.want[i] {
				t.Errorf("%q: want %v in\n%s", text, test.want[i], terminal)
			}
		}
	}
}
