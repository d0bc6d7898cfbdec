package capacitytest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"synclab/bench/raw"
	"synclab/reports/model"
)

// cells are those of the records: Services, and endpoints of each.
var cells = [][2]int{{250, 10}, {500, 10}, {1000, 10}, {2000, 10}, {4000, 10}, {500, 4}, {2000, 4}, {1000, 25}}

// Noise of single syncs, packets and sizes: standard deviations of logarithms.
const syncNoise, packetNoise, sizeNoise = 0.06, 0.3, 0.004

// recorder makes the records of one subject.
type recorder struct {
	laws Laws
	rng  *rand.Rand
	base raw.Record
	at   float64
	sync int
	out  []raw.Record
}

func (r *recorder) add(metric raw.Metric, unit string, value float64, change func(*raw.Record)) {
	one := r.base
	one.At, one.Metric, one.Unit, one.Value = r.at, metric, unit, value
	if change != nil {
		change(&one)
	}
	r.out = append(r.out, one)
}

// one adds the records of a sync of c changed Services: 0 is a full sync.
func (r *recorder) one(inGo, user, sys float64, c int) {
	r.sync++
	noise := math.Exp(r.rng.NormFloat64() * syncNoise)
	took := (inGo + user + sys) * noise
	r.at += took + 1
	kind, metric := model.Full, raw.FullSync
	if c > 0 {
		kind, metric = model.Partial, raw.PartialSync
	}
	step := fmt.Sprintf("%d:churn", 2*r.sync)
	of := func(one *raw.Record) {
		one.Sync, one.Kind, one.Family, one.Step = r.sync, kind, "IPv4", step
	}
	r.add(metric, "s", took, of)
	r.add(raw.ToolUser, "s", user*noise, of)
	r.add(raw.ToolSys, "s", sys*noise, of)
	if c > 0 {
		r.add(raw.Changes, "count", float64(c), of)
	}
	n := float64(r.base.Services) * r.base.Endpoints
	if r.laws.ChildRSS != nil {
		r.add(raw.ChildPeakRSS, "B", r.laws.ChildRSS(float64(r.base.Services), n), of)
	}
	r.add(raw.SubjectCPU, "s", 0.95*took+0.002, func(one *raw.Record) { one.Step = step })
}

// repetition adds the records of one repetition of a cell.
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
	r.add(raw.PeakRSS, "B", l.RSS(s, n)*near(), nil)
	r.add(raw.RulesKernel, "count", l.Rules(s, n), func(one *raw.Record) { one.Table = "nat" })
	if l.Elements != nil {
		r.add(raw.RulesKernel, "count", l.Elements(s, n), func(one *raw.Record) { one.Table = "elements" })
	}
	for range 50 {
		r.add(raw.FirstPacket, "s", l.Packet(s)*math.Exp(r.rng.NormFloat64()*packetNoise), func(one *raw.Record) {
			one.Position = &r.base.Services
		})
	}
}

// Records returns the records of subjects with these formulas, by name.
func Records(subjects map[string]Laws) []raw.Record {
	var names []string
	for name := range subjects {
		names = append(names, name)
	}
	slices.Sort(names)
	var out []raw.Record
	for _, name := range names {
		rng := rand.New(rand.NewPCG(1, 2)) // the same for all: subjects differ only by their formulas
		for _, cell := range cells {
			for rep := range 2 {
				r := &recorder{laws: subjects[name], rng: rng}
				r.base = raw.Record{Scenario: "calibrate", Subject: name, Services: cell[0], Endpoints: float64(cell[1]), Rep: rep + 1}
				r.repetition()
				out = append(out, r.out...)
			}
		}
	}
	return out
}

// Fit returns the model of subjects with these formulas.
func Fit(subjects map[string]Laws) (*model.Model, error) {
	return model.Fit(raw.Run{
		ID: "synthetic", Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Feed: raw.FeedAPI,
		Versions: raw.Versions{Synclab: "test", Go: "go", Kernel: "6.0.0-synthetic", IPTablesLegacy: "iptables v1.8.9 (legacy)", Nft: "nftables v1.0.6", KubeProxy: "v1.36.0"},
		Machine:  raw.Machine{OS: "synthetic", CPU: "synthetic", CPUs: 2, MemoryBytes: 8 << 30},
	}, Records(subjects), model.FitOptions{Seed: 1})
}

var fitOnce = sync.OnceValues(func() (*model.Model, error) { return Fit(Subjects()) })

// Model has kube-proxy/iptables-legacy, kube-proxy/nftables, synclab/iptables-legacy and synclab/nftables, measured at
// up to 4,000 Services of 10 endpoints. All callers share it, and must not change it.
func Model() *model.Model {
	m, err := fitOnce()
	if err != nil {
		panic(fmt.Sprintf("capacitytest: %v", err))
	}
	return m
}
