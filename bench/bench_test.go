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

	"synclab/bench/internal/rigtest"
	"synclab/bench/lab/netns"
	"synclab/bench/probe"
	"synclab/bench/subject"
	"synclab/proxier"
	"synclab/proxier/kernel"
	"synclab/scenarios"
)

var sizesFlag = flag.String("sizes", "", "numbers of Services to benchmark, separated by commas, for every benchmark and backend; "+
	"empty: 1000, and 10000 where no kernel takes part, which is some three minutes")

// benchSizes returns the sizes of the -sizes flag, or else the defaults.
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
func eachBackend(b *testing.B, f func(b *testing.B, about subject.Spec, services int)) {
	for _, about := range subject.Own() {
		for _, n := range benchSizes(b, 1000) {
			b.Run(fmt.Sprintf("%s/services=%d/endpoints=%d", backendName(about), n, rigtest.Endpoints), func(b *testing.B) {
				if err := about.Available(); err != nil {
					b.Skip(err)
				}
				if limit, err := kernel.SendLimit(); about.Iptables() && !about.Legacy() && (err != nil || limit > 0) {
					b.Skipf("an iptables-nft-restore of this user is limited to %d bytes (%v)", limit, err)
				}
				f(b, about, n)
			})
		}
	}
}

// backendName names the backend in a benchmark's name.
func backendName(about subject.Spec) string {
	return "backend=" + strings.TrimPrefix(about.Name, subject.Synclab+"/")
}

// BenchmarkFullSync measures the first sync of a proxier that knows the whole cluster, in a namespace without rules.
func BenchmarkFullSync(b *testing.B) {
	eachBackend(b, func(b *testing.B, about subject.Spec, services int) {
		world := rigtest.World(b, scenarios.Shape{Services: services})
		var sum phases
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			lab := &scope{TB: b}
			netns.Fresh(lab)
			r := rigtest.New(lab, world, about, nil)
			runtime.GC() // collect the cluster's garbage before the sync
			b.StartTimer()
			r.Sync(lab)
			b.StopTimer()
			sum.add(r.Last)
			lab.close()
			b.StartTimer()
		}
		sum.report(b)
	})
}

// BenchmarkPartialSync measures the sync after one changed EndpointSlice.
func BenchmarkPartialSync(b *testing.B) {
	eachBackend(b, func(b *testing.B, about subject.Spec, services int) {
		netns.Fresh(b)
		benchPartial(b, rigtest.New(b, rigtest.World(b, scenarios.Shape{Services: services}), about, nil), "endpoints")
	})
}

// BenchmarkPlan measures from an API object to the plan, without a backend: the event's digest, the tracker and the
// planner. A changed slice costs the same in any cluster. An added or deleted Service moves all later ones in the plan's
// order. "zone" changes the node's own zone, so every Service is planned again; "all" plans the whole cluster.
func BenchmarkPlan(b *testing.B) {
	for _, change := range []string{"slice", "service", "zone", "all"} {
		for _, n := range benchSizes(b, 1000, 10_000) {
			b.Run(fmt.Sprintf("change=%s/services=%d/endpoints=%d", change, n, rigtest.Endpoints), func(b *testing.B) {
				p := newPlanner(rigtest.World(b, scenarios.Shape{Services: n}))
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

// BenchmarkEncode measures plan and encode of iptables, without a kernel, for either variant. After a changed
// EndpointSlice, the cost should not depend on the number of Services. After an added or deleted Service, layout classic
// rewrites its dispatch chain, and layout tree a few chains. "all" is a full sync without earlier tables.
func BenchmarkEncode(b *testing.B) {
	for _, about := range subject.Own() {
		if !about.Legacy() {
			continue
		}
		for _, change := range []string{"slice", "service", "all"} {
			for _, n := range benchSizes(b, 1000, 10_000) {
				b.Run(fmt.Sprintf("%s/change=%s/services=%d/endpoints=%d", backendName(about), change, n, rigtest.Endpoints), func(b *testing.B) {
					r := rigtest.New(b, rigtest.World(b, scenarios.Shape{Services: n}), about, &voidTables{})
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

// BenchmarkLoad measures the time to load a cluster, start the informers, and wait until the proxier's handlers have all
// objects.
func BenchmarkLoad(b *testing.B) {
	for _, n := range benchSizes(b, 1000, 10_000) {
		b.Run(fmt.Sprintf("services=%d/endpoints=%d", n, rigtest.Endpoints), func(b *testing.B) {
			world := rigtest.World(b, scenarios.Shape{Services: n})
			b.ReportAllocs()
			for b.Loop() {
				lab := &scope{TB: b}
				rigtest.New(lab, world, subject.All()[0], &voidTables{})
				b.StopTimer()
				lab.close()
				b.StartTimer()
			}
		})
	}
}

// packetsPerOp is the number of packets per target in one operation of BenchmarkTraversal.
const packetsPerOp = 100

// BenchmarkTraversal measures the first packet of a flow: medians at the first, middle and last dispatch rule and for a
// miss. ns-per-rule is the cost per rule between the first and the last. An operation is packetsPerOp packets to each of
// the four targets, so ns/op is only the duration of the measurement.
func BenchmarkTraversal(b *testing.B) {
	eachBackend(b, func(b *testing.B, about subject.Spec, services int) {
		rigtest.Network(b)
		udp := scenarios.Shape{Services: services, Protocols: map[string]float64{"UDP": 1}} // the probe sends UDP
		r := rigtest.New(b, rigtest.World(b, udp), about, nil)
		r.Sync(b)
		frontends, rules := r.Proxier.Dispatch(corev1.IPv4Protocol)
		first, middle, last := frontends[0], frontends[len(frontends)/2], frontends[len(frontends)-1]
		options := probe.TraversalOptions{
			Targets: []probe.Target{
				{Position: first.Position, Addr: first.Addr}, {Position: middle.Position, Addr: middle.Addr},
				{Position: last.Position, Addr: last.Addr}, {Position: -1, Addr: missedAddr(r.World)},
			},
			Samples: packetsPerOp, Rand: rand.New(rand.NewPCG(rigtest.Seed, 0)),
		}
		took := map[int][]float64{}
		for b.Loop() {
			err := probe.MeasureTraversal(b.Context(), options, func(target *probe.Target, d time.Duration) {
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

// benchPartial measures syncs that each follow one change, of a kind of world.World.Churn. A full sync comes first.
func benchPartial(b *testing.B, r *rigtest.Rig, kind string) {
	r.Sync(b)
	var sum phases
	runtime.GC()
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		r.Change(b, kind)
		b.StartTimer()
		r.Sync(b)
		if r.Last.Kind != proxier.Partial {
			b.Fatalf("sync %d was a %s one: %s", r.Last.Seq, r.Last.Kind, r.Last.Reason)
		}
		sum.add(r.Last)
	}
	sum.report(b)
}

func benchRepeatedFull(b *testing.B, r *rigtest.Rig) {
	var sum phases
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Proxier.SyncNow(b.Context(), "benchmark"); err != nil {
			b.Fatal(err)
		}
		sum.add(r.Last)
	}
	sum.report(b)
	b.SetBytes(int64(sum.bytes / sum.syncs))
}
