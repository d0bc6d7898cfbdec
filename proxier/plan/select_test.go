package plan

import (
	"fmt"
	"slices"
	"testing"

	"synclab/proxier/tracker"
)

var here = Node{Name: "here", Zone: "east"}

// ep makes an endpoint with the given text, usually a letter.
func ep(text string, change func(*tracker.Endpoint)) *tracker.Endpoint {
	e := &tracker.Endpoint{Text: text, Ready: true, Serving: true}
	if change != nil {
		change(e)
	}
	return e
}

func local(e *tracker.Endpoint)    { e.Local = true }
func unready(e *tracker.Endpoint)  { e.Ready, e.Serving = false, false }
func draining(e *tracker.Endpoint) { e.Ready, e.Serving, e.Terminating = false, true, true }
func stopping(e *tracker.Endpoint) { e.Ready, e.Serving, e.Terminating = false, false, true }

func both(f, g func(*tracker.Endpoint)) func(*tracker.Endpoint) {
	return func(e *tracker.Endpoint) { f(e); g(e) }
}

func textsOf(endpoints []*tracker.Endpoint) string {
	text := ""
	for _, e := range endpoints {
		text += e.Text
	}
	return text
}

// Ready endpoints come first. Without any, terminating endpoints that still serve are used. The cluster's and the
// node's endpoints fall back independently.
func TestSelection(t *testing.T) {
	for _, c := range []struct {
		name           string
		endpoints      []*tracker.Endpoint
		cluster, local string
		any            bool
	}{
		{"none", nil, "", "", false},
		{"ready", []*tracker.Endpoint{ep("a", nil), ep("b", local)}, "ab", "b", true},
		{"some not ready", []*tracker.Endpoint{ep("a", unready), ep("b", local), ep("c", both(local, unready))}, "b", "b", true},
		{"none ready", []*tracker.Endpoint{ep("a", unready), ep("b", both(local, unready))}, "", "", false},
		{"draining beside ready", []*tracker.Endpoint{ep("a", draining), ep("b", nil)}, "b", "", true},
		{"all draining", []*tracker.Endpoint{ep("a", draining), ep("b", both(local, draining))}, "ab", "b", true},
		{"draining here, ready there", []*tracker.Endpoint{ep("a", both(local, draining)), ep("b", nil)}, "b", "a", true},
		{"ready here, draining there", []*tracker.Endpoint{ep("a", local), ep("b", draining)}, "a", "a", true},
		{"stopping", []*tracker.Endpoint{ep("a", stopping), ep("b", both(local, stopping))}, "", "", false},
		{"serving, not ready, not terminating", []*tracker.Endpoint{ep("a", func(e *tracker.Endpoint) { e.Ready = false })}, "", "", false},
		{"stopping and draining", []*tracker.Endpoint{ep("a", stopping), ep("b", draining)}, "b", "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			port := &tracker.ServicePort{NodePort: 30000, ExternalPolicyLocal: true} // uses both sets
			d := decide(port, epoch, c.endpoints, here)
			if textsOf(d.Cluster) != c.cluster || textsOf(d.Local) != c.local || d.HasEndpoints != c.any {
				t.Errorf("cluster %q, local %q, any %v; want %q, %q, %v",
					textsOf(d.Cluster), textsOf(d.Local), d.HasEndpoints, c.cluster, c.local, c.any)
			}
			if d.Known != len(c.endpoints) {
				t.Errorf("%d known, want %d", d.Known, len(c.endpoints))
			}
		})
	}
}

// Hints are followed if every ready endpoint has them and one names this node or zone. Hints for nodes precede hints
// for zones. The test runs all combinations of three endpoints.
func TestTopology(t *testing.T) {
	hints := [][]string{nil, {"ours"}, {"other"}, {"other", "ours"}}
	var kinds []tracker.Endpoint
	for _, ready := range []bool{true, false} {
		for _, nodes := range hints {
			for _, zones := range hints {
				kinds = append(kinds, tracker.Endpoint{Ready: ready, Hints: &tracker.Hints{Nodes: nodes, Zones: zones}})
			}
		}
	}
	node := Node{Name: "ours", Zone: "ours"}
	modes := map[topology]int{}
	for i := range kinds {
		for j := range kinds {
			for k := range kinds {
				list := []*tracker.Endpoint{&kinds[i], &kinds[j], &kinds[k]}
				var nodes, zones [][]string // of the ready ones
				for _, e := range list {
					if e.Ready {
						nodes, zones = append(nodes, e.Nodes()), append(zones, e.Zones())
					}
				}
				want := anywhere
				switch {
				case followed(nodes):
					want = sameNode
				case followed(zones):
					want = sameZone
				}
				if got := topologyOf(list, node); got != want {
					t.Fatalf("%s: %v, want %v", describe(list), got, want)
				}
				modes[want]++
				for _, e := range clusterEndpoints(list, node) {
					if !e.Ready || (want == sameNode && !slices.Contains(e.Nodes(), "ours")) || (want == sameZone && !slices.Contains(e.Zones(), "ours")) {
						t.Fatalf("%s: %+v was chosen", describe(list), *e)
					}
				}
			}
		}
	}
	if len(modes) != 3 {
		t.Errorf("not every mode occurred: %v", modes)
	}
}

func followed(hints [][]string) bool {
	missing := slices.ContainsFunc(hints, func(h []string) bool { return len(h) == 0 })
	return !missing && slices.ContainsFunc(hints, func(h []string) bool { return slices.Contains(h, "ours") })
}

func describe(list []*tracker.Endpoint) string {
	text := ""
	for _, e := range list {
		text += fmt.Sprintf("[ready %v, nodes %v, zones %v] ", e.Ready, e.Nodes(), e.Zones())
	}
	return text
}

func TestTopologyAndFallback(t *testing.T) {
	zone := func(name string) func(*tracker.Endpoint) {
		return func(e *tracker.Endpoint) { e.Hints = &tracker.Hints{Zones: []string{name}} }
	}
	node := func(name string) func(*tracker.Endpoint) {
		return func(e *tracker.Endpoint) { e.Hints.Nodes = []string{name} }
	}
	east, west := zone("east"), zone("west")
	for _, c := range []struct {
		name           string
		node           Node
		endpoints      []*tracker.Endpoint
		cluster, local string
	}{
		{"zone", here, []*tracker.Endpoint{ep("a", east), ep("b", west)}, "a", ""},
		{"zone unknown", Node{Name: "here"}, []*tracker.Endpoint{ep("a", east), ep("b", west)}, "ab", ""},
		{"no hint names an unknown zone", Node{Name: "here"}, []*tracker.Endpoint{
			ep("a", zone("")), ep("b", west)}, "ab", ""},
		{"zone without endpoints", Node{Name: "here", Zone: "north"}, []*tracker.Endpoint{ep("a", east), ep("b", west)}, "ab", ""},
		{"hints do not bind what drains", here, []*tracker.Endpoint{ep("a", both(east, draining)), ep("b", both(west, draining))}, "ab", ""},
		{"one that is not ready needs no hint", here, []*tracker.Endpoint{ep("a", east), ep("b", unready), ep("c", west)}, "a", ""},
		{"here, whatever the hints", here, []*tracker.Endpoint{ep("a", east), ep("b", both(local, west))}, "a", "b"},
		{"node before zone", here, []*tracker.Endpoint{
			ep("a", both(east, node("there"))),
			ep("b", both(west, node("here"))),
		}, "b", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := decide(&tracker.ServicePort{NodePort: 1, ExternalPolicyLocal: true}, epoch, c.endpoints, c.node)
			if textsOf(d.Cluster) != c.cluster || textsOf(d.Local) != c.local {
				t.Errorf("cluster %q, local %q; want %q and %q", textsOf(d.Cluster), textsOf(d.Local), c.cluster, c.local)
			}
		})
	}
}

// The endpoint sets of a port, and whether its internal and external traffic has endpoints, by policy and by location
// of the endpoints.
func TestPolicies(t *testing.T) {
	everywhere := []*tracker.Endpoint{ep("a", nil), ep("b", local)}
	elsewhere := []*tracker.Endpoint{ep("a", nil)}
	type want struct {
		cluster, local, reachable string
		internal, external        bool
	}
	for _, c := range []struct {
		name                         string
		nodePort                     uint16
		internalLocal, externalLocal bool
		endpoints                    []*tracker.Endpoint
		want                         want
	}{
		{"cluster IP", 0, false, false, everywhere, want{"ab", "", "ab", true, true}},
		{"cluster IP, internal Local", 0, true, false, everywhere, want{"", "b", "b", true, true}},
		{"cluster IP, internal Local, elsewhere", 0, true, false, elsewhere, want{"", "", "", false, true}},
		{"cluster IP, external Local has no meaning", 0, false, true, everywhere, want{"ab", "", "ab", true, false}},
		{"node port", 30000, false, false, elsewhere, want{"a", "", "a", true, true}},
		{"node port, external Local", 30000, false, true, everywhere, want{"ab", "b", "ab", true, true}},
		{"node port, external Local, elsewhere", 30000, false, true, elsewhere, want{"a", "", "a", true, false}},
		{"node port, internal Local, elsewhere", 30000, true, false, elsewhere, want{"a", "", "a", false, true}},
		{"node port, both Local, elsewhere", 30000, true, true, elsewhere, want{"a", "", "a", false, false}},
		{"no endpoints", 30000, true, true, nil, want{"", "", "", false, false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			port := &tracker.ServicePort{NodePort: c.nodePort, InternalPolicyLocal: c.internalLocal, ExternalPolicyLocal: c.externalLocal}
			d := decide(port, epoch, c.endpoints, here)
			got := want{textsOf(d.Cluster), textsOf(d.Local), textsOf(d.Reachable), d.HasInternalEndpoints(), d.HasExternalEndpoints()}
			if got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// All endpoints on this node terminate, and one on another node is ready. Each kind of traffic reaches its endpoints,
// so both sets are reachable.
func TestReachableIsTheUnion(t *testing.T) {
	endpoints := []*tracker.Endpoint{ep("a", both(local, draining)), ep("b", nil), ep("c", both(local, draining)), ep("d", nil)}
	d := decide(&tracker.ServicePort{NodePort: 1, ExternalPolicyLocal: true}, epoch, endpoints, here)
	if got := textsOf(d.Reachable); got != "abcd" {
		t.Errorf("reachable: %s", got)
	}
	if got := textsOf(d.Cluster) + "|" + textsOf(d.Local); got != "bd|ac" {
		t.Errorf("the union changed what it was made of: %s", got)
	}
}
