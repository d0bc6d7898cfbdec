package capacitytest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"synclab/bench"
	"synclab/reports/model"
)

// cells that the records are of: Services and endpoints of each.
var cells = [][2]int{{250, 10}, {500, 10}, {1000, 10}, {2000, 10}, {4000, 10}, {500, 4}, {2000, 4}, {1000, 25}}

// noise of single syncs, packets and sizes: standard deviations of logarithms.
const syncNoise, packetNoise, sizeNoise = 0.06, 0.3, 0.004

// recorder makes the records of one subject.
type recorder struct {
	laws Laws
	rng  *rand.Rand
	base bench.Record
	at   float64
	sync int
	out  []bench.Record
}

func (r *recorder) add(metric bench.Metric, unit string, value float64, change func(*bench.Record)) {
	one := r.base
	one.At, one.Metric, one.Unit, one.Value = r.at, metric, unit, value
	if change != nil {
		change(&one)
	}
	r.out = append(r.out, one)
}

// one sync of c changed Services: 0 is a full one.
func (r *recorder) one(inGo, user, sys float64, c int) {
	r.sync++
	noise := math.Exp(r.rng.NormFloat64() * syncNoise)
	took := (inGo + user + sys) * noise
	r.at += took + 1
	kind, metric := model.Full, bench.FullSync
	if c > 0 {
		kind, metric = model.Partial, bench.PartialSync
	}
	step := fmt.Sprintf("%d:churn", 2*r.sync)
	of := func(one *bench.Record) {
		one.Sync, one.Kind, one.Family, one.Step = r.sync, kind, "IPv4", step
	}
	r.add(metric, "s", took, of)
	r.add(bench.ToolUser, "s", user*noise, of)
	r.add(bench.ToolSys, "s", sys*noise, of)
	if c > 0 {
		r.add(bench.Changes, "count", float64(c), of)
	}
	n := float64(r.base.Services) * r.base.Endpoints
	if r.laws.ChildRSS != nil {
		r.add(bench.ChildPeakRSS, "B", r.laws.ChildRSS(float64(r.base.Services), n), of)
	}
	r.add(bench.SubjectCPU, "s", 0.95*took+0.002, func(one *bench.Record) { one.Step = step })
}

// repetition of one cell.
func (r *recorder) repetition() {
	s := float64(r.base.Services)
	n := s * r.base.Endpoints
	near := func() float64 { return math.Exp(r.rng.NormFloat64() * sizeNoise) }
	l := r.laws
	r.one(l.FullGo(s, n), l.FullUser(s, n), l.FullSys(s, n), 0)
	for _, c := range []int{1, 1, 1, 10, 40, 120} {
		x := float64(c)
		r.one(l.PartialGo(s, n, x), l.PartialUser(s, n, x), l.PartialSys(s, n, x), c)
	}
	r.add(bench.PeakRSS, "B", l.RSS(s, n)*near(), nil)
	r.add(bench.RulesKernel, "count", l.Rules(s, n), func(one *bench.Record) { one.Table = "nat" })
	if l.Elements != nil {
		r.add(bench.RulesKernel, "count", l.Elements(s, n), func(one *bench.Record) { one.Table = "elements" })
	}
	for range 50 {
		r.add(bench.FirstPacket, "s", l.Packet(s)*math.Exp(r.rng.NormFloat64()*packetNoise), func(one *bench.Record) {
			one.Position = &r.base.Services
		})
	}
}

// Records of subjects with these laws, by name.
func Records(subjects map[string]Laws) []bench.Record {
	var names []string
	for name := range subjects {
		names = append(names, name)
	}
	slices.Sort(names)
	var out []bench.Record
	for _, name := range names {
		rng := rand.New(rand.NewPCG(1, 2)) // the same for all: subjects differ by their laws only
		for _, cell := range cells {
			for rep := range 2 {
				r := &recorder{laws: subjects[name], rng: rng}
				r.base = bench.Record{Scenario: "calibrate", Subject: name, Services: cell[0], Endpoints: float64(cell[1]), Rep: rep + 1}
				r.repetition()
				out = append(out, r.out...)
			}
		}
	}
	return out
}

// Fit is the model of subjects with these laws.
func Fit(subjects map[string]Laws) (*model.Model, error) {
	return model.Fit(bench.Run{
		ID: "synthetic", Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Feed: bench.FeedAPI,
		Versions: bench.Versions{Synclab: "test", Go: "go", Kernel: "6.0.0-synthetic", IPTablesLegacy: "iptables v1.8.9 (legacy)", Nft: "nftables v1.0.6", KubeProxy: "v1.36.0"},
		Machine:  bench.Machine{OS: "synthetic", CPU: "synthetic", CPUs: 2, MemoryBytes: 8 << 30},
	}, Records(subjects), model.FitOptions{Seed: 1})
}

var fitOnce = sync.OnceValues(func() (*model.Model, error) { return Fit(Subjects()) })

// Model has kube-proxy/iptables-legacy, kube-proxy/nftables, synclab/iptables-legacy and synclab/nftables, measured at up
// to 4,000 Services of 10 endpoints. All callers share it: it is not to be changed.
func Model() *model.Model {
	m, err := fitOnce()
	if err != nil {
		panic(fmt.Sprintf("capacitytest: %v", err))
	}
	return m
}
