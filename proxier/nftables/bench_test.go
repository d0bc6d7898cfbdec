package nftables

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"synclab/proxier/plan"
)

var benchSizes = []int{1000, 10000, 50000}

const benchEndpoints = 10

func benchPorts(services int) []*plan.ServicePort {
	ports := make([]*plan.ServicePort, services)
	for i := range ports {
		ports[i] = clusterPort(i, benchEndpoints)
	}
	return ports
}

// oneChanged returns a Service port with one other endpoint.
func oneChanged(p *plan.ServicePort, round int) *plan.ServicePort {
	changed := *p
	changed.Cluster = slices.Clone(p.Cluster)
	changed.Cluster[round%benchEndpoints] = endpoint(100_000_000 + round)
	changed.Reachable = changed.Cluster
	return &changed
}

func eachSize(b *testing.B, f func(b *testing.B, services int)) {
	for _, services := range benchSizes {
		b.Run(fmt.Sprintf("backend=nftables/services=%d/endpoints=%d", services, benchEndpoints), func(b *testing.B) { f(b, services) })
	}
}

func taken([]byte, uint32, uint32) error { return nil }

// BenchmarkEncodeFull measures a full sync without the kernel's work.
func BenchmarkEncodeFull(b *testing.B) {
	eachSize(b, func(b *testing.B, services int) {
		ports := benchPorts(services)
		b.ReportAllocs()
		for b.Loop() {
			e := newEncoder(plainSettings.Family, tableNames[0], taken)
			e.limit = batchBytes
			if err := NewRuleset(plainSettings).Load(e, ports); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkEncodePartial measures a partial sync without the kernel's work, after the change of one endpoint.
func BenchmarkEncodePartial(b *testing.B) {
	eachSize(b, func(b *testing.B, services int) {
		ports := benchPorts(services)
		e := newEncoder(plainSettings.Family, tableNames[0], taken)
		r := NewRuleset(plainSettings)
		if err := r.Load(e, ports); err != nil {
			b.Fatal(err)
		}
		changes := make([]*plan.ServicePort, 1000)
		for i := range changes {
			changes[i] = oneChanged(ports[i*7919%services], i)
		}
		b.ReportAllocs()
		round := 0
		for b.Loop() {
			r.Update(plan.Delta{Changed: changes[round%len(changes):][:1]})
			round++
			if err := r.Partial(e); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkFullSync and BenchmarkPartialSync include the kernel's work.
func BenchmarkFullSync(b *testing.B) {
	eachSize(b, func(b *testing.B, services int) {
		ports, on := benchPorts(services), onKernel(b, plainSettings)
		b.ReportAllocs()
		for b.Loop() {
			mustSync(b, on, true, ports)
		}
	})
}

// BenchmarkFullSyncSkewed has as many endpoints, but few Services have most of them.
func BenchmarkFullSyncSkewed(b *testing.B) {
	for _, shape := range []struct{ services, endpoints, exponent int }{{20000, 10, 0}, {20000, 10, 1}, {100, 2000, 0}} {
		b.Run(fmt.Sprintf("services=%d/endpoints=%d/exponent=%d", shape.services, shape.endpoints, shape.exponent), func(b *testing.B) {
			var ports []*plan.ServicePort
			for i, n := range skewed(shape.services, shape.services*shape.endpoints, shape.exponent) {
				ports = append(ports, clusterPort(i, 0))
				for range n {
					ports[i].Cluster = append(ports[i].Cluster, endpoint(100*i+len(ports[i].Cluster)))
				}
				ports[i].Reachable = ports[i].Cluster
			}
			on := onKernel(b, plainSettings)
			b.ReportAllocs()
			for b.Loop() {
				mustSync(b, on, true, ports)
			}
		})
	}
}

// skewed shares out endpoints: the share of a Service falls with its number to the power of an exponent.
func skewed(services, endpoints, exponent int) []int {
	weight := func(i int) float64 { return 1 / math.Pow(float64(i+1), float64(exponent)) }
	total := 0.0
	for i := range services {
		total += weight(i)
	}
	counts := make([]int, services)
	for i := range counts {
		counts[i] = max(1, int(float64(endpoints)*weight(i)/total))
	}
	return counts
}

func BenchmarkPartialSync(b *testing.B) {
	eachSize(b, func(b *testing.B, services int) {
		ports, on := benchPorts(services), onKernel(b, plainSettings)
		mustSync(b, on, true, ports)
		b.ReportAllocs()
		round := 0
		for b.Loop() {
			i := round * 7919 % services
			on.Update(plan.Delta{Changed: []*plan.ServicePort{oneChanged(ports[i], round)}})
			round++
			if mustSync(b, on, false, ports).Full {
				b.Fatal("a full sync")
			}
		}
	})
}
