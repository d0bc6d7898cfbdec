package bench

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/netns"
	"synclab/proxier"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
	"synclab/scenarios"
)

var sizesFlag = flag.String("sizes", "", "numbers of Services to benchmark, separated by commas, for every benchmark and backend; "+
	"empty: 1000, and 10000 where no kernel takes part, which is some three minutes")

const (
	benchSeed      = 1
	benchEndpoints = 10
)

// benchSizes are those of the -sizes flag, or else the given ones.
func benchSizes(b *testing.B, defaults ...int) []int {
	b.Helper()
	if *sizesFlag == "" {
		return defaults
	}
	var sizes []int
	for text := range strings.SplitSeq(*sizesFlag, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 {
			b.Fatalf("-sizes %s: want numbers of Services, separated by commas", *sizesFlag)
		}
		sizes = append(sizes, n)
	}
	return sizes
}

// eachBackend runs a benchmark for every backend of the lab's own proxier.
func eachBackend(b *testing.B, f func(b *testing.B, about Subject, services int)) {
	for _, about := range Subjects() {
		if about.Proxier != Synclab {
			continue
		}
		for _, n := range benchSizes(b, 1000) {
			b.Run(fmt.Sprintf("%s/services=%d/endpoints=%d", backendName(about), n, benchEndpoints), func(b *testing.B) {
				if err := about.Available(); err != nil {
					b.Skip(err)
				}
				if limit, err := kernel.SendLimit(); about.Variant == iptables.Nft && (err != nil || limit > 0) {
					b.Skipf("an iptables-nft-restore of this user takes %d bytes only (%v)", limit, err)
				}
				f(b, about, n)
			})
		}
	}
}

// backendName is the part of a benchmark's name that says which backend it is of.
func backendName(about Subject) string {
	return "backend=" + strings.TrimPrefix(about.Name, Synclab+"/")
}

// BenchmarkFullSync is the first sync of a proxier that knows the whole cluster, in a namespace without any rule.
func BenchmarkFullSync(b *testing.B) {
	eachBackend(b, func(b *testing.B, about Subject, services int) {
		world := benchWorld(b, scenarios.Shape{Services: services})
		var sum phases
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			lab := &scope{TB: b}
			netns.Fresh(lab)
			r := newRig(lab, world, about, nil)
			runtime.GC() // the cluster's garbage is not the sync's
			b.StartTimer()
			r.sync(lab)
			b.StopTimer()
			sum.add(r.last)
			lab.close()
			b.StartTimer()
		}
		sum.report(b)
	})
}

// BenchmarkPartialSync is the sync that follows one changed EndpointSlice.
func BenchmarkPartialSync(b *testing.B) {
	eachBackend(b, func(b *testing.B, about Subject, services int) {
		netns.Fresh(b)
		benchPartial(b, newRig(b, benchWorld(b, scenarios.Shape{Services: services}), about, nil), "endpoints")
	})
}

// BenchmarkPlan is from an API object to the plan, without any backend: an event is digested, taken by the tracker and
// planned. A changed slice costs the same in any cluster, a Service that comes or goes moves what comes after it in the
// plan's order. "zone" is the node's own, which every Service is planned again for, and "all" the whole cluster.
func BenchmarkPlan(b *testing.B) {
	for _, change := range []string{"slice", "service", "zone", "all"} {
		for _, n := range benchSizes(b, 1000, 10_000) {
			b.Run(fmt.Sprintf("change=%s/services=%d/endpoints=%d", change, n, benchEndpoints), func(b *testing.B) {
				p := newPlanner(benchWorld(b, scenarios.Shape{Services: n}))
				step := map[string]func(int){"slice": p.changeSlice, "service": p.changeService, "zone": p.changeZone, "all": p.loadAgain}[change]
				runtime.GC()
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					step(i)
				}
			})
		}
	}
}

// BenchmarkEncode is a sync without any kernel: what plan and encode of iptables cost. After a changed EndpointSlice
// that should not depend on the number of Services. After a Service that came or went layout classic has its dispatch
// chain to write anew, layout tree a few chains. "all" is a full sync, without the tables of a former one. Both variants of
// iptables are given the same.
func BenchmarkEncode(b *testing.B) {
	for _, about := range Subjects() {
		if about.Proxier != Synclab || about.Backend != proxier.Iptables || about.Variant != iptables.Legacy {
			continue
		}
		for _, change := range []string{"slice", "service", "all"} {
			for _, n := range benchSizes(b, 1000, 10_000) {
				b.Run(fmt.Sprintf("%s/change=%s/services=%d/endpoints=%d", backendName(about), change, n, benchEndpoints), func(b *testing.B) {
					r := newRig(b, benchWorld(b, scenarios.Shape{Services: n}), about, &voidTables{})
					switch change {
					case "slice":
						benchPartial(b, r, "endpoints")
					case "service":
						benchPartial(b, r, "services")
					default:
						benchRepeatedFull(b, r)
					}
				})
			}
		}
	}
}

// BenchmarkLoad is from nothing to "handlers have everything": load a cluster, start the informers and wait for the
// proxier's handlers.
func BenchmarkLoad(b *testing.B) {
	for _, n := range benchSizes(b, 1000, 10_000) {
		b.Run(fmt.Sprintf("services=%d/endpoints=%d", n, benchEndpoints), func(b *testing.B) {
			world := benchWorld(b, scenarios.Shape{Services: n})
			b.ReportAllocs()
			for b.Loop() {
				lab := &scope{TB: b}
				newRig(lab, world, Subjects()[0], &voidTables{})
				b.StopTimer()
				lab.close()
				b.StartTimer()
			}
		})
	}
}

// packetsPerOp is how many packets one operation of BenchmarkTraversal sends to each of its targets.
const packetsPerOp = 100

// BenchmarkTraversal is what the first packet of a flow pays: medians at the first, middle and last dispatch rule and
// for a miss, and, as ns-per-rule, what each rule between the first and the last adds. An operation is packetsPerOp
// packets to each of the four, so its ns/op means nothing but how long the measurement takes.
func BenchmarkTraversal(b *testing.B) {
	eachBackend(b, func(b *testing.B, about Subject, services int) {
		network(b)
		udp := scenarios.Shape{Services: services, Protocols: map[string]float64{"UDP": 1}} // what the probe sends
		r := newRig(b, benchWorld(b, udp), about, nil)
		r.sync(b)
		frontends, rules := r.proxier.Dispatch(corev1.IPv4Protocol)
		first, middle, last := frontends[0], frontends[len(frontends)/2], frontends[len(frontends)-1]
		options := TraversalOptions{
			Targets: []Target{
				{Position: first.Position, Addr: first.Addr}, {Position: middle.Position, Addr: middle.Addr},
				{Position: last.Position, Addr: last.Addr}, {Position: -1, Addr: missedAddr(r.world)},
			},
			Samples: packetsPerOp, Rand: rand.New(rand.NewPCG(benchSeed, 0)),
		}
		took := map[int][]float64{}
		for b.Loop() {
			err := MeasureTraversal(b.Context(), options, func(target *Target, d time.Duration) {
				took[target.Position] = append(took[target.Position], float64(d.Nanoseconds()))
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		median := func(position int) float64 { slices.Sort(took[position]); return took[position][len(took[position])/2] }
		b.ReportMetric(median(first.Position), "first-ns")
		b.ReportMetric(median(middle.Position), "middle-ns")
		b.ReportMetric(median(last.Position), "last-ns")
		b.ReportMetric(median(-1), "miss-ns")
		b.ReportMetric((median(last.Position)-median(first.Position))/float64(last.Position-first.Position), "ns-per-rule")
		b.ReportMetric(float64(rules), "rules")
	})
}

// benchPartial times syncs that each follow one change of a kind that sim.World.Churn knows. The first sync, a full one, comes before.
func benchPartial(b *testing.B, r *rig, kind string) {
	r.sync(b)
	var sum phases
	runtime.GC()
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		r.change(b, kind)
		b.StartTimer()
		r.sync(b)
		if r.last.Kind != proxier.Partial {
			b.Fatalf("sync %d was a %s one: %s", r.last.Seq, r.last.Kind, r.last.Reason)
		}
		sum.add(r.last)
	}
	sum.report(b)
}

func benchRepeatedFull(b *testing.B, r *rig) {
	var sum phases
	b.ReportAllocs()
	for b.Loop() {
		r.proxier.ForceSync("benchmark")
		r.sync(b)
		sum.add(r.last)
	}
	sum.report(b)
	b.SetBytes(int64(sum.bytes / sum.syncs))
}
