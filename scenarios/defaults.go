package scenarios

import (
	"math"
	"reflect"
	"slices"
)

// The defaults that are no presets of rules: those that depend on other fields. Proxy has none: its zero values keep the
// defaults of the proxier's own configuration.
const (
	defaultZones     = 3
	defaultEndpoints = 10
	// defaultSkew gives a few large Services and a long tail of small ones.
	defaultSkew = 1.5
	// defaultZipfSpread is the largest Service of a Zipf shape, as a multiple of the mean.
	defaultZipfSpread = 100

	defaultServiceCIDRv4 = "10.96.0.0/12"
	defaultServiceCIDRv6 = "fd00:10:96::/108"
	defaultPodCIDRv4     = "10.128.0.0/9"
	defaultPodCIDRv6     = "fd00:10:128::/64"

	defaultPoints      = 5
	defaultFlushTable  = "nat"
	defaultFaultTimes  = 1
	defaultMemoryLimit = 64 << 20

	defaultStaleFlows, defaultStaleServices = 5_000, 10
)

// or sets a field that has its zero value.
func or[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Fill sets unset fields to their defaults.
func (s *Scenario) Fill() {
	s.Shape.Fill()
	for i := range s.Sweep {
		if a := &s.Sweep[i]; a.From != 0 {
			or(&a.Points, defaultPoints)
		}
	}
	for _, step := range s.Steps {
		step.fill()
	}
}

// Fill sets unset fields of a shape to their defaults.
func (s *Shape) Fill() {
	if s.SharedPods > 0 {
		or(&s.Namespaces, 1) // a Service selects pods of its own namespace
	}
	fillPresets(reflect.ValueOf(s), "shape")
	// A cluster of two nodes cannot have three zones.
	or(&s.Zones, max(1, min(defaultZones, s.Nodes)))
	s.Endpoints.fill()
	if s.Families == nil {
		s.Families = []string{"IPv4"}
	}
	if s.ServiceCIDRs == nil {
		s.ServiceCIDRs = s.forFamilies(defaultServiceCIDRv4, defaultServiceCIDRv6)
	}
	if s.PodCIDRs == nil {
		s.PodCIDRs = s.forFamilies(defaultPodCIDRv4, defaultPodCIDRv6)
	}
}

func (e *Endpoints) fill() {
	if e.Distribution == "uniform" && e.Max != 0 {
		or(&e.Count, (e.Min+e.Max+1)/2)
	}
	or(&e.Count, defaultEndpoints)
	switch e.Distribution {
	case "uniform":
		or(&e.Max, 2*e.Count-e.Min)
	case "zipf":
		or(&e.Skew, defaultSkew)
		or(&e.Max, e.zipfMax())
	}
}

// zipfMax returns the default size of the largest Service.
func (e *Endpoints) zipfMax() int {
	if e.Count > MaxEndpoints/defaultZipfSpread {
		return MaxEndpoints
	}
	return e.Count * defaultZipfSpread
}

// forFamilies returns the network of each family, in the families' order.
func (s *Shape) forFamilies(v4, v6 string) []string {
	var cidrs []string
	for _, f := range s.Families {
		switch f {
		case "IPv4":
			cidrs = append(cidrs, v4)
		case "IPv6":
			cidrs = append(cidrs, v6)
		}
	}
	return cidrs
}

// forgetDerived unsets fields that hold derived defaults. When a sweep changes their inputs, Fill derives them again.
func (s *Shape) forgetDerived() {
	if slices.Equal(s.ServiceCIDRs, s.forFamilies(defaultServiceCIDRv4, defaultServiceCIDRv6)) {
		s.ServiceCIDRs = nil
	}
	if slices.Equal(s.PodCIDRs, s.forFamilies(defaultPodCIDRv4, defaultPodCIDRv6)) {
		s.PodCIDRs = nil
	}
	switch e := &s.Endpoints; e.Distribution {
	case "uniform":
		if e.Count == (e.Min+e.Max+1)/2 {
			e.Count = 0
		}
	case "zipf":
		if e.Max == e.zipfMax() {
			e.Max = 0
		}
		if e.Skew == defaultSkew {
			e.Skew = 0
		}
	}
	if own := s.SharedPods == 0; own && s.Namespaces == rules["shape.namespaces"].preset || !own && s.Namespaces == 1 {
		s.Namespaces = 0
	}
	if s.Zones == min(defaultZones, s.Nodes) {
		s.Zones = 0
	}
}

// setMean makes count the mean of the distribution, and scales its limits.
func (e *Endpoints) setMean(count int) {
	old := e.Mean()
	scale := func(n int) int { return int(math.Round(float64(n) * float64(count) / old)) }
	switch {
	case e.Distribution == "uniform" && e.Max != 0 && old > 0:
		e.Min = min(scale(e.Min), count)
		e.Max = 2*count - e.Min
	case e.Distribution == "zipf" && e.Max != 0 && old > 0:
		e.Max = max(count, min(scale(e.Max), MaxEndpoints))
	}
	e.Count = count
}

// fill sets unset fields of a step to their defaults. Those of a fault depend on its kind. The end of a stream has none.
func (st Step) fill() {
	if st.Fault != nil {
		st.Fault.fill()
	}
	if st.Traffic != nil && st.Traffic.Stop {
		return
	}
	fillPresets(reflect.ValueOf(st), "steps.N")
}

// fillPresets sets unset fields below a path to the presets of their rules.
func fillPresets(of reflect.Value, path string) {
	visit(of, path, func(path string, v reflect.Value) {
		if r, _ := ruleOf(path); r.preset != nil && v.IsZero() {
			v.Set(reflect.ValueOf(r.preset).Convert(v.Type()))
		}
	})
}
