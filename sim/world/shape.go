package world

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"sort"

	corev1 "k8s.io/api/core/v1"

	"synclab/internal/inet"
	"synclab/scenarios"
)

// checkShape refuses shapes that cannot be generated. They would fail in the middle of a run otherwise.
func checkShape(s scenarios.Shape) error {
	for _, n := range []struct {
		field string
		value int
		least int
	}{
		{"services", s.Services, 0}, {"namespaces", s.Namespaces, 1}, {"nodes", s.Nodes, 1},
		{"zones", s.Zones, 1}, {"ports", s.Ports, 1}, {"endpoints.count", s.Endpoints.Count, 0},
		{"endpoints.min", s.Endpoints.Min, 0}, {"sharedPods", s.SharedPods, 0},
	} {
		if n.value < n.least {
			return fmt.Errorf("shape: %s is %d: want at least %d", n.field, n.value, n.least)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Types)) {
		if !slices.Contains(serviceKinds, name) {
			return fmt.Errorf("shape: types: unknown type %q: want one of %v", name, serviceKinds)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Protocols)) {
		if !slices.Contains(protocolKinds, corev1.Protocol(name)) {
			return fmt.Errorf("shape: protocols: unknown protocol %q: want one of %v", name, protocolKinds)
		}
	}
	seen := map[string]bool{}
	for _, f := range s.Families {
		if f != string(corev1.IPv4Protocol) && f != string(corev1.IPv6Protocol) || seen[f] {
			return fmt.Errorf("shape: families %v: want IPv4 and IPv6, each at most once", s.Families)
		}
		seen[f] = true
	}
	return nil
}

// shapeFamilies returns the families of a shape, in its order.
func shapeFamilies(s scenarios.Shape) []corev1.IPFamily {
	families := make([]corev1.IPFamily, len(s.Families))
	for i, f := range s.Families {
		families[i] = corev1.IPFamily(f)
	}
	return families
}

// rangesFor returns the ranges of a family among a shape's CIDRs: at least one.
func rangesFor(field string, cidrs []string, family corev1.IPFamily) (ranges []netip.Prefix, err error) {
	for _, c := range cidrs {
		prefix, err := netip.ParsePrefix(c)
		if err != nil {
			return nil, fmt.Errorf("shape: %s: %w", field, err)
		}
		if inet.FamilyOf(prefix.Addr()) == family {
			ranges = append(ranges, prefix.Masked())
		}
	}
	if len(ranges) == 0 {
		return nil, fmt.Errorf("shape: %s %v: no %s range", field, cidrs, family)
	}
	return ranges, nil
}

// endpointCounts draws the number of endpoints of a Service.
type endpointCounts struct {
	spec scenarios.Endpoints
	// cumulative[k] is the probability of at most k+1 endpoints (zipf).
	cumulative []float64
}

func newEndpointCounts(spec scenarios.Endpoints) (*endpointCounts, error) {
	c := &endpointCounts{spec: spec}
	switch spec.Distribution {
	case "fixed":
	case "uniform":
		if spec.Max < spec.Min {
			return nil, fmt.Errorf("shape: endpoints: uniform needs min ≤ max, has %d and %d", spec.Min, spec.Max)
		}
	case "zipf":
		if spec.Count < 1 || 2*spec.Count > spec.Max+1 {
			return nil, fmt.Errorf("shape: endpoints: zipf needs a mean (count) of at least 1 and at most half of max, has %d and %d", spec.Count, spec.Max)
		}
		if spec.Skew <= 1 {
			return nil, fmt.Errorf("shape: endpoints: zipf needs a skew above 1, has %g", spec.Skew)
		}
		c.cumulative = zipfCumulative(spec.Count, spec.Max, spec.Skew)
	default:
		return nil, fmt.Errorf("shape: endpoints: unknown distribution %q: want fixed, uniform or zipf", spec.Distribution)
	}
	return c, nil
}

// of returns the count for a draw u in [0, 1).
func (c *endpointCounts) of(u float64) int {
	switch c.spec.Distribution {
	case "uniform":
		return c.spec.Min + int(u*float64(c.spec.Max-c.spec.Min+1))
	case "zipf":
		return 1 + sort.SearchFloat64s(c.cumulative[:len(c.cumulative)-1], u)
	default:
		return c.spec.Count
	}
}

// zipfCumulative returns the Zipf-Mandelbrot distribution over 1..most with P(k) ~ (k-1+shift)^-skew. It searches the
// shift that gives the mean: without a shift, mean and skew could not both be chosen.
func zipfCumulative(mean, most int, skew float64) []float64 {
	cumulative := make([]float64, most)
	fill := func(shift float64) float64 {
		sum, weighted := 0.0, 0.0
		for k := range cumulative {
			p := math.Pow(float64(k)+shift, -skew)
			sum += p
			weighted += p * float64(k+1)
			cumulative[k] = sum
		}
		for k := range cumulative {
			cumulative[k] /= sum
		}
		return weighted / sum
	}
	low, high := 1e-9, 1.0
	for fill(high) < float64(mean) && high < 1e12 {
		high *= 2
	}
	for range 60 { // halves the interval to float64's precision
		middle := (low + high) / 2
		if fill(middle) < float64(mean) {
			low = middle
		} else {
			high = middle
		}
	}
	fill(high)
	return cumulative
}
