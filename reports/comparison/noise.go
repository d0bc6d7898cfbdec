package comparison

import (
	"math"

	"synclab/bench/subject"
	"synclab/proxier/iptables"
)

// Noise is how much a figure differs between two sides of a cell that must be equal in it.
type Noise struct {
	Metric string  `json:"metric"`
	A      string  `json:"a,omitempty"` // the two sides; none for memory
	B      string  `json:"b,omitempty"`
	Share  float64 `json:"share"` // by which the larger value exceeds the other
}

// sameRules reports whether packets take the same way with both sides: kube-proxy's rules of one variant of iptables, which
// Synclab's proxier writes too in layout classic, and as many of them if they were counted.
func sameRules(a, b Side) bool {
	classic := func(s Side) (iptables.Variant, bool) {
		about := subject.Named(s.Subject)
		return about.Variant, about.Classic()
	}
	va, okA := classic(a)
	vb, okB := classic(b)
	ra, rb := a.Figure(FigureRules), b.Figure(FigureRules)
	return okA && okB && va == vb && (ra == nil && rb == nil || ra != nil && rb != nil && ra.Value == rb.Value)
}

// filePages is how much the peak memory of equal proxiers may differ. A resident set counts the pages of the program's file
// that are mapped, and their number depends on how the page cache holds the file: two builds of kube-proxy that differ in
// a comment had 67.8 and 70.0 MiB, in all of twelve repetitions.
const filePages = 0.05

// findNoise takes the noise of first packets from the sides with the same rules, the largest of all pairs. The noise of memory
// is filePages.
func (c *CellComparison) findNoise() {
	for _, metric := range []string{FigureFirstPacket, FigureFirstSYN, FigureConnection, FigureConnCPU} {
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
		if noise.A != "" {
			c.quieten(noise)
		}
	}
	for _, metric := range []string{FigureRSS, FigureTotalRSS} {
		c.quieten(Noise{Metric: metric, Share: filePages})
	}
}

// quieten removes the words of ratios that are not beyond the noise. It keeps noise with a ratio.
func (c *CellComparison) quieten(noise Noise) {
	found := false
	for i := range c.Ratios {
		r := &c.Ratios[i]
		if r.Metric != noise.Metric {
			continue
		}
		found = true
		if r.Bound == "" && math.Max(r.Ratio, 1/r.Ratio) <= (1+noise.Share)*(1+1e-9) {
			r.Differs, r.Observed, r.WithinNoise = false, false, true
			r.Words = "within the noise"
		}
	}
	if found {
		c.Noise = append(c.Noise, noise)
	}
}
