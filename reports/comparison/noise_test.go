package comparison

import (
	"testing"

	"synclab/reports/estimate"
)

// Of first packets, differences are named beyond that of two subjects with the same rules. Other figures are not concerned.
func TestNoise(t *testing.T) {
	side := func(name string, packet, reaction, rules float64) Side {
		return Side{Series: name, Subject: name, Figures: []estimate.Estimate{
			*estimate.Of(FigureFirstPacket, "s", estimate.Single(repeated(packet)...), 50), *estimate.Of(FigureReaction, "s", estimate.Single(repeated(reaction)...), 50),
			*estimate.Of(FigureRules, "count", estimate.Single(repeated(rules)...), 50)}}
	}
	compared := func(rules float64) *CellComparison {
		c := &CellComparison{Sides: []Side{side("kube-proxy/iptables-legacy", 10, 10, 100), side("synclab/iptables-legacy", 10.4, 10.4, rules),
			side("synclab/iptables-legacy-tree", 10.3, 10.3, 9), side("kube-proxy/nftables", 5, 5, 7)}}
		for _, s := range c.Sides[1:] {
			c.add(c.Sides[0], s, []string{"overall"})
		}
		c.adjust()
		c.findNoise()
		return c
	}
	c := compared(100)
	if len(c.Noise) != 1 || c.Noise[0].Share < 0.039 || c.Noise[0].Share > 0.041 || c.Noise[0].B != "synclab/iptables-legacy" {
		t.Fatalf("noise %+v", c.Noise)
	}
	for name, differs := range map[string]bool{"synclab/iptables-legacy": false, "synclab/iptables-legacy-tree": false, "kube-proxy/nftables": true} {
		if r := c.Ratio(name, "kube-proxy/iptables-legacy", FigureFirstPacket); r.Differs != differs || r.WithinNoise == differs {
			t.Errorf("%s: %+v", name, r)
		}
		if r := c.Ratio(name, "kube-proxy/iptables-legacy", FigureReaction); !r.Differs || r.WithinNoise {
			t.Errorf("%s, reaction: %+v", name, r)
		}
	}
	if c := compared(101); len(c.Noise) != 0 {
		t.Errorf("other rules: %+v", c.Noise)
	}
}

// repeated has a value in each of eight repetitions.
func repeated(value float64) (all []float64) {
	for range 8 {
		all = append(all, value)
	}
	return all
}
