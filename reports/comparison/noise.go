package comparison

import (
	"math"

	"synclab/bench/subject"
	"synclab/proxier/iptables"
)

// Noise is how much a figure differs between two sides of a cell that must be equal in it.
type Noise struct {
	Metric string  `json:"metric"`
	A      string  `json:"a"`
	B      string  `json:"b"`
	Share  float64 `json:"share"` // by which the larger value exceeds the other
}

// sameRules reports whether packets take the same way with both sides: kube-proxy's rules of one variant of iptables, which
// Synclab's proxier writes too in layout classic, and as many of them if they were counted.
func sameRules(a, b Side) bool {
	classic := func(s Side) (iptables.Variant, bool) {
		about, err := subject.Parse(s.Subject)
		return about.Variant, err == nil && about.Variant != "" && about.RulesCarry() && (about.Layout == "" || about.Layout == iptables.Classic)
	}
	va, okA := classic(a)
	vb, okB := classic(b)
	ra, rb := a.Figure(FigureRules), b.Figure(FigureRules)
	return okA && okB && va == vb && (ra == nil && rb == nil || ra != nil && rb != nil && ra.Value == rb.Value)
}

// findNoise takes the noise of first packets from the sides with the same rules, the largest of all pairs, and removes the
// words of ratios that are not beyond it.
func (c *CellComparison) findNoise() {
	for _, metric := range []string{FigureFirstPacket, FigureFirstSYN} {
		noise := Noise{Metric: metric}
		for i, a := range c.Sides {
			for _, b := range c.Sides[i+1:] {
				va, vb := a.Figure(metric), b.Figure(metric)
				if va == nil || vb == nil || !(va.Value > 0 && vb.Value > 0) || !sameRules(a, b) {
					continue
				}
				if share := math.Max(va.Value/vb.Value, vb.Value/va.Value) - 1; noise.A == "" || share > noise.Share {
					noise.A, noise.B, noise.Share = a.Series, b.Series, share
				}
			}
		}
		if noise.A == "" {
			continue
		}
		c.Noise = append(c.Noise, noise)
		for i := range c.Ratios {
			if r := &c.Ratios[i]; r.Metric == metric && r.Bound == "" && math.Max(r.Ratio, 1/r.Ratio) <= (1+noise.Share)*(1+1e-9) {
				r.Differs, r.Observed, r.WithinNoise = false, false, true
				r.Words = "within the noise"
			}
		}
	}
}
