package scenarios

import (
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
)

// Validate refuses settings that cannot work, before anything starts. The error is of type Problems and holds all of
// them.
//
// Defaults must be set (Fill): Load does both.
func (s *Scenario) Validate() error {
	problems := s.checkValues()
	if len(problems) == 0 {
		problems = s.checkWhole()
	}
	return problems.err()
}

// checkValues checks each single value against its rule.
func (s *Scenario) checkValues() Problems {
	var ps Problems
	for _, name := range []struct {
		path  string
		empty bool
	}{{"name", s.Name == ""}, {"steps", len(s.Steps) == 0}} {
		if name.empty {
			ps.add(name.path, "is empty")
		}
	}
	visit(reflect.ValueOf(s).Elem(), "", func(path string, v reflect.Value) {
		if path == "name" && s.Name == "" {
			return
		}
		if keys, ok := mapKeys[parentOf(path)]; ok {
			if key := strings.TrimPrefix(path, parentOf(path)+"."); !slices.Contains(keys, key) {
				ps.add(path, isOneOf(key, keys))
				return
			}
		}
		r, _ := ruleOf(path) // a test checks that each path has one
		if text := r.check(v); text != "" {
			ps.add(path, text)
		}
	})
	if len(s.Steps) > maxSteps {
		ps.add("steps", fmt.Sprintf("%s steps are not allowed: want at most %s", thousands(len(s.Steps)), thousands(maxSteps)))
	}
	for i, st := range s.Steps {
		if st.Kind() == "" {
			ps.add(fmt.Sprintf("steps.%d", i), "is not exactly one kind of step")
		}
	}
	return ps
}

// checkWhole checks the values against each other. Each single value must be valid.
func (s *Scenario) checkWhole() Problems {
	var ps Problems
	s.Shape.check(&ps)
	s.Proxy.check(&ps)
	var service, pod familyNetworks
	if !covers(pathsOf(ps), "shape.families") {
		service, pod = s.Shape.checkNetworks(&ps)
	}
	s.checkTargets(&ps)
	s.checkSteps(&ps)
	if len(ps) == 0 {
		s.checkFit(service, pod, &ps)
	}
	if len(ps) == 0 {
		s.checkSweep(&ps)
	}
	return ps
}

func (s *Shape) check(ps *Problems) {
	for _, group := range []struct {
		path   string
		shares map[string]float64
		rest   string
	}{
		{"shape.types", s.Types, "ClusterIP"},
		{"shape.protocols", s.Protocols, "TCP"},
		{"shape", map[string]float64{"notReady": s.NotReady, "terminating": s.Terminating}, "ready"},
	} {
		if sum := sumOf(group.shares); sum > 1 {
			ps.add(group.path, fmt.Sprintf("the shares%s add up to %g: want at most 1, the rest is %s",
				shareNames(group.path), sum, group.rest))
		}
	}
	if len(s.Families) == 0 || len(s.Families) > 2 || (len(s.Families) == 2 && s.Families[0] == s.Families[1]) {
		ps.add("shape.families", fmt.Sprintf("%v is not allowed: want [IPv4], [IPv6] or both, the primary one first", s.Families))
	}
	if s.Zones > s.Nodes {
		ps.add("shape.zones", fmt.Sprintf("%d zones are more than shape.nodes, %d", s.Zones, s.Nodes))
	}
	s.Endpoints.check(ps)
	if 0 < s.SharedPods && s.SharedPods < s.Endpoints.Count {
		ps.add("shape.sharedPods", fmt.Sprintf("%d pods are less than shape.endpoints.count, %d: want at least as many", s.SharedPods, s.Endpoints.Count))
	}
}

// sumOf adds shares, rounded so that 0.7 + 0.2 + 0.1 is 1.
func sumOf(shares map[string]float64) float64 {
	sum := 0.0
	for _, v := range shares {
		sum += v
	}
	return math.Round(sum*1e9) / 1e9
}

func shareNames(path string) string {
	if path == "shape" {
		return " notReady and terminating"
	}
	return ""
}

func (e *Endpoints) check(ps *Problems) {
	const path = "shape.endpoints"
	switch e.Distribution {
	case "fixed":
		if e.Min != 0 || e.Max != 0 {
			ps.add(path, "min and max have no effect on a fixed distribution: want count alone")
		}
	case "uniform":
		if e.Min > e.Max {
			ps.add(path, fmt.Sprintf("min %d is above max %d", e.Min, e.Max))
		} else if diff := 2*e.Count - e.Min - e.Max; diff < -1 || diff > 1 {
			ps.add(path, fmt.Sprintf("count %d is not the mean of min %d and max %d: leave out one of the three", e.Count, e.Min, e.Max))
		}
	case "zipf":
		if e.Min != 0 {
			ps.add(path, "min has no effect on a zipf distribution, which begins at 1")
		}
		if e.Max < 2*e.Count-1 {
			ps.add(path, fmt.Sprintf("max %d is too small for a mean (count) of %d: want at least %d, as most Services are below the mean", e.Max, e.Count, 2*e.Count-1))
		}
	}
	if e.Skew != 0 && e.Distribution != "zipf" {
		ps.add(path, "skew has no effect on a "+e.Distribution+" distribution: it is zipf's")
	}
}

// Mean is the mean number of endpoints of a Service that has any.
func (e Endpoints) Mean() float64 {
	if e.Distribution == "uniform" && e.Max != 0 {
		return float64(e.Min+e.Max) / 2
	}
	return float64(e.Count)
}

func (p *Proxy) check(ps *Problems) {
	if p.MinSyncPeriod != 0 && p.SyncPeriod != 0 && p.MinSyncPeriod > p.SyncPeriod {
		ps.add("proxy.minSyncPeriod", fmt.Sprintf("%s is above proxy.syncPeriod, %s", showDuration(p.MinSyncPeriod), showDuration(p.SyncPeriod)))
	}
	if slices.Contains(p.NodePortAddresses, "primary") {
		if len(p.NodePortAddresses) > 1 {
			ps.add("proxy.nodePortAddresses", "primary cannot be combined with networks")
		}
		return
	}
	for i, cidr := range p.NodePortAddresses {
		if _, err := netip.ParsePrefix(cidr); err != nil {
			ps.add(fmt.Sprintf("proxy.nodePortAddresses.%d", i), quote(cidr)+" is not a network: want one such as 192.168.0.0/16, or primary alone")
		}
	}
}
