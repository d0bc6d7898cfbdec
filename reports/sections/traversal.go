package sections

import (
	"fmt"
	"math"
	"slices"

	"synclab/bench/raw"
	"synclab/reports/comparison"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// PacketCost is the cost of first packets for one subject in one cell, by one method. Times are in seconds and include
// the cost of any packet: Empty is the cost in an empty ruleset.
type PacketCost struct {
	Series string       `json:"series"`
	Cell   records.Cell `json:"cell"`
	// Method is sendto or connect (one system call) or, for flows between namespaces, handshake, echo or established.
	Method string `json:"method"`
	// Spots are the positions in order, then the miss, then the kinds of destinations.
	Spots []PacketSpot `json:"spots"`
	Empty *float64     `json:"empty,omitempty"`
	// PerService is the line through the medians by dispatch position: the cost of each Service in front.
	PerService *estimate.Fit `json:"per_service,omitempty"`
	// PerRule is the line through the same medians by rules crossed, if these were counted and vary.
	PerRule *estimate.Fit `json:"per_rule,omitempty"`
	// Flat is the verdict on whether the position matters.
	Flat *Flatness `json:"flatness,omitempty"`
}

// PacketSpot is one destination of the probe.
type PacketSpot struct {
	Name     string `json:"name"` // first, middle, last, miss, position N, or a kind of destination
	Position int    `json:"position,omitempty"`
	Target   string `json:"target,omitempty"`
	estimate.Distribution
	// Rules is the number of rules that the packet crosses, counted by the ruleset evaluator over the kernel's rules.
	Rules *float64 `json:"rules_evaluated,omitempty"`
	// Empty is the cost of such a packet in an empty ruleset, if it differs from a packet to a cluster IP.
	Empty *float64 `json:"empty,omitempty"`
}

// PacketGrowth is the growth of the cost at the last Service with the number of Services.
type PacketGrowth struct {
	Series       string    `json:"series"`
	Scenario     string    `json:"scenario"`
	Settings     string    `json:"settings,omitempty"`
	Method       string    `json:"method"`
	Sizes        []int     `json:"sizes"`
	Medians      []float64 `json:"medians"` // at the last Service of each size
	Times        float64   `json:"times"`   // the largest size's median divided by the smallest's
	estimate.Fit           // by Services, through the medians of the repetitions
	Flat         Flatness  `json:"flatness"`
}

// packetCosts has one entry for each series, cell and method.
func packetCosts(c *records.Collection) []PacketCost {
	var out []PacketCost
	for _, cell := range c.Cells {
		for _, method := range records.Methods {
			for _, s := range c.Series {
				samples := s.Cells[cell.ID()]
				if samples == nil {
					continue
				}
				if p := packetCost(samples, method); len(p.Spots) > 0 {
					p.Series, p.Cell = s.Name, cell
					out = append(out, p)
				}
			}
		}
	}
	return out
}

func packetCost(c *records.Samples, method string) PacketCost {
	p := PacketCost{Method: records.MethodName(method), Empty: medianOf(c.Packets(raw.FirstPacket, method, 0))}
	positions := c.Positions(method)
	var at, crossed []estimate.Point
	var rules []float64
	for _, position := range positions {
		cost := c.Packets(raw.FirstPacket, method, position)
		spot := PacketSpot{Name: spotName(positions, position), Position: position, Distribution: estimate.Describe(cost),
			Rules: medianOf(c.Packets(raw.RulesEvaluated, "", position))}
		at = append(at, estimate.Point{X: float64(position), Y: cost})
		if spot.Rules != nil {
			crossed, rules = append(crossed, estimate.Point{X: *spot.Rules, Y: cost}), append(rules, *spot.Rules)
		}
		p.Spots = append(p.Spots, spot)
	}
	if miss := c.Packets(raw.FirstPacket, method, -1); len(miss) > 0 {
		p.Spots = append(p.Spots, PacketSpot{Name: "miss", Position: -1, Distribution: estimate.Describe(miss), Rules: medianOf(c.Packets(raw.RulesEvaluated, "", -1))})
	}
	for _, target := range c.Targets(method) {
		p.Spots = append(p.Spots, PacketSpot{Name: target, Target: target, Distribution: estimate.Describe(c.ToTarget(raw.FirstPacket, method, target, false)),
			Rules: medianOf(c.ToTarget(raw.RulesEvaluated, "", target, false)), Empty: medianOf(c.ToTarget(raw.FirstPacket, method, target, true))})
	}
	if fit, ok := estimate.FitLine(at); ok {
		flat := FlatnessOf(fit, at[0].X, at[len(at)-1].X)
		p.PerService, p.Flat = &fit, &flat
	}
	if len(crossed) == len(at) && varies(rules) {
		if fit, ok := estimate.FitLine(crossed); ok {
			p.PerRule = &fit
		}
	}
	return p
}

// varies reports whether the rules crossed differ enough for a line: by a factor of two, and by ten rules.
func varies(crossed []float64) bool {
	if len(crossed) < 3 {
		return false
	}
	least, most := slices.Min(crossed), slices.Max(crossed)
	return most >= 2*least && most-least >= 10
}

// spotName names the first and last position and, of three or more, the one nearest to half the last.
func spotName(positions []int, position int) string {
	last := positions[len(positions)-1]
	switch {
	case position == positions[0] && len(positions) > 1:
		return "first"
	case position == last:
		return "last"
	}
	middle := slices.MinFunc(positions[1:len(positions)-1], func(a, b int) int { return records.Abs(a-last/2) - records.Abs(b-last/2) })
	if position == middle {
		return "middle"
	}
	return records.PositionText(position)
}

// Spot returns a spot by name; nil if not probed.
func (p PacketCost) Spot(name string) *PacketSpot {
	return records.Find(p.Spots, func(s PacketSpot) bool { return s.Name == name })
}

// Flatness is a verdict on whether a cost depends on something, from the line through its medians.
type Flatness struct {
	// Growth is the line's growth over the whole range, as a share of its value at the start. Low and High use the
	// bounds of the slope's 95 % interval; nil without one.
	Growth float64  `json:"growth"`
	Low    *float64 `json:"ci_low,omitempty"`
	High   *float64 `json:"ci_high,omitempty"`
	// RangeLow and RangeHigh are from the repetitions' lines, if there is no interval.
	RangeLow  *float64 `json:"range_low,omitempty"`
	RangeHigh *float64 `json:"range_high,omitempty"`
	// Verdict is flat, grows, falls, observed (too few repetitions), or unknown: no growth shown, but a large one is
	// possible.
	Verdict string `json:"verdict"`
}

// The limits of the flatness test: growth over the whole range.
const (
	flatGrowth   = 0.10 // less is flat, even if the growth is certain
	flatPossible = 0.25 // without a shown growth, the interval must exclude more than this
)

// FlatnessOf judges a line over a range.
func FlatnessOf(fit estimate.Fit, from, to float64) Flatness {
	base := fit.At(from)
	if base <= 0 {
		return Flatness{Verdict: "unknown"}
	}
	share := func(slope float64) float64 { return slope * (to - from) / base }
	f := Flatness{Growth: share(fit.Slope)}
	if fit.SlopeLow != nil {
		low, high := share(*fit.SlopeLow), share(*fit.SlopeHigh)
		f.Low, f.High = &low, &high
	}
	if fit.SlopeRangeLow != nil {
		low, high := share(*fit.SlopeRangeLow), share(*fit.SlopeRangeHigh)
		f.RangeLow, f.RangeHigh = &low, &high
	}
	switch {
	case f.Low == nil:
		f.Verdict = VerdictObserved
	case *f.Low <= 0 && *f.High >= 0 && *f.High > flatPossible:
		f.Verdict = "unknown"
	case *f.Low <= 0 && *f.High >= 0, math.Abs(f.Growth) < flatGrowth:
		f.Verdict = "flat"
	case f.Growth > 0:
		f.Verdict = "grows"
	default:
		f.Verdict = "falls"
	}
	return f
}

// Words states the verdict with its numbers: "flat: +1.2 % (−0.4 … +2.8 %)".
func (f Flatness) Words() string {
	growth := signedPercent(f.Growth)
	if f.Growth >= 1 {
		growth = comparison.Times(1+f.Growth) + "×"
	}
	switch {
	case f.Low == nil && f.RangeLow == nil:
		return "observed " + growth
	case f.Low == nil && f.Growth >= 1:
		return fmt.Sprintf("observed %s (range %s … %s×)", growth, comparison.Times(1+*f.RangeLow), comparison.Times(1+*f.RangeHigh))
	case f.Low == nil:
		return fmt.Sprintf("observed %s (range %s … %s)", growth, signedPercent(*f.RangeLow), signedPercent(*f.RangeHigh))
	case f.Verdict == "grows" && f.Growth >= 1:
		return fmt.Sprintf("grows %s (%s … %s×)", growth, comparison.Times(1+*f.Low), comparison.Times(1+*f.High))
	case f.Verdict == "unknown":
		return fmt.Sprintf("no growth shown, but up to %s is possible", signedPercent(*f.High))
	}
	return fmt.Sprintf("%s: %s (%s … %s)", f.Verdict, growth, signedPercent(*f.Low), signedPercent(*f.High))
}

// signedPercent formats a share with its sign: "+1.2 %".
func signedPercent(share float64) string {
	percent := 100 * share
	digits := 0
	if math.Abs(percent) < 9.95 {
		digits = 1
	}
	text := fmt.Sprintf("%+.*f", digits, percent)
	if text == "-0.0" || text == "+0.0" {
		text = "0"
	}
	if text[0] == '-' {
		text = "−" + text[1:]
	}
	return text + " %"
}

// packetGrowths fits the cost at the last Service over the sizes.
func packetGrowths(c *records.Collection) []PacketGrowth {
	var out []PacketGrowth
	for _, line := range c.SweepLines() {
		for _, method := range records.Methods {
			for _, s := range c.Series {
				g := PacketGrowth{Series: s.Name, Scenario: line.Scenario, Settings: line.Settings, Method: records.MethodName(method)}
				var points []estimate.Point
				for _, cell := range line.Cells {
					samples := s.Cells[cell.ID()]
					positions := samples.Positions(method)
					if len(positions) == 0 {
						continue
					}
					last := positions[len(positions)-1]
					g.Sizes = append(g.Sizes, cell.Services)
					values := samples.Packets(raw.FirstPacket, method, last)
					g.Medians = append(g.Medians, values.Median())
					points = append(points, estimate.Point{X: float64(cell.Services), Y: values})
				}
				fit, ok := estimate.FitLine(points)
				if !ok || g.Medians[0] == 0 {
					continue
				}
				g.Fit, g.Times = fit, g.Medians[len(g.Medians)-1]/g.Medians[0]
				g.Flat = FlatnessOf(fit, float64(slices.Min(g.Sizes)), float64(slices.Max(g.Sizes)))
				out = append(out, g)
			}
		}
	}
	return out
}

// ProbedDeeply reports whether the run is about packets: rules counted, other destinations, or flows between
// namespaces.
func (s *Summary) ProbedDeeply() bool {
	return slices.ContainsFunc(s.Packets, func(p PacketCost) bool {
		return slices.Contains(records.FlowMethods, p.Method) || slices.ContainsFunc(p.Spots, func(spot PacketSpot) bool { return spot.Rules != nil || spot.Target != "" })
	})
}

// NodeMethods are the methods of first packets in one system call, as in PacketCost.Method.
var NodeMethods = []string{records.MethodName(""), raw.MethodConnect}

func (s *Summary) packetsBy(methods []string) []PacketCost {
	return slices.DeleteFunc(slices.Clone(s.Packets), func(p PacketCost) bool { return !slices.Contains(methods, p.Method) })
}

// PacketCells are the cells with first packets of some methods, the largest first.
func (s *Summary) PacketCells(methods ...string) []records.Cell {
	return largestFirst(s.packetsBy(methods), func(p PacketCost) records.Cell { return p.Cell })
}

// PacketsOf returns a cell's costs by some methods, in the order of the series.
func (s *Summary) PacketsOf(cell records.Cell, methods ...string) []PacketCost {
	return slices.DeleteFunc(s.packetsBy(methods), func(p PacketCost) bool { return p.Cell.ID() != cell.ID() })
}
