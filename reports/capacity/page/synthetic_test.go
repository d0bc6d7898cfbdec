package page

import (
	"math"
	"slices"
	"time"

	"synclab/bench/raw"
	"synclab/proxier/runner"
	"synclab/reports/capacity"
	"synclab/reports/model"
)

// lawful is a subject whose quantities are functions of n, the total number of endpoints.
type lawful struct {
	name                          string
	full, partial, memory, packet func(n float64) float64
	rules                         func(n float64) float64
	policy                        capacity.Policy
	largest                       float64 // of the calibration, in endpoints
	validationError               float64
}

var completion = capacity.Policy{Runner: runner.CompletionToStart, MinSyncPeriod: time.Second}
var bucket = capacity.Policy{Runner: runner.TokenBucket, MinSyncPeriod: time.Second, Burst: 2}

const mebi = 1 << 20

var lawfulSubjects = []lawful{
	{name: "kube-proxy/iptables-legacy", full: func(n float64) float64 { return 0.05 + 4e-5*n + 6e-10*n*n }, partial: func(n float64) float64 { return 0.03 + 1.6e-5*n },
		memory: func(n float64) float64 { return 60*mebi + 4000*n }, packet: func(n float64) float64 { return 2.5e-6 + 3e-10*n }, rules: func(n float64) float64 { return 400 + 3.2*n }, policy: completion, largest: 24000, validationError: 0.04},
	{name: "kube-proxy/nftables", full: func(n float64) float64 { return 0.08 + 2e-5*n + 2.5e-9*n*n }, partial: func(n float64) float64 { return 0.03 + 2e-6*n + 8e-10*n*n },
		memory: func(n float64) float64 { return 95*mebi + 4100*n }, packet: func(float64) float64 { return 4.5e-6 }, rules: func(n float64) float64 { return 40 + 2.1*n }, policy: completion, largest: 24000, validationError: -0.13},
	{name: "synclab/iptables-legacy", full: func(n float64) float64 { return 0.03 + 5e-5*n }, partial: func(n float64) float64 { return 0.01 + 6e-6*n },
		memory: func(n float64) float64 { return 50*mebi + 2400*n }, packet: func(n float64) float64 { return 2.5e-6 + 3e-10*n }, rules: func(n float64) float64 { return 400 + 3.2*n }, policy: bucket, largest: 40000, validationError: 0.02},
	{name: "synclab/nftables", full: func(n float64) float64 { return 0.03 + 1e-5*n }, partial: func(float64) float64 { return 0.005 },
		memory: func(n float64) float64 { return 40*mebi + 1000*n }, packet: func(float64) float64 { return 4.1e-6 }, rules: func(float64) float64 { return 120 }, policy: bucket, largest: 40000, validationError: -0.01},
}

// estimate makes an estimate of a value at n endpoints, if cells of up to largest were measured.
func (l lawful) estimate(n, value float64) capacity.Estimate {
	e := capacity.Estimate{Median: value, Low: value * 0.93, High: value * 1.08, Basis: model.Interpolated, Beyond: 1}
	switch {
	case n == 20000:
		e.Basis, e.Low, e.High = model.Measured, value*0.97, value*1.03
	case n > l.largest:
		e.Basis, e.Beyond = model.Extrapolated, n/l.largest
		wide := math.Exp(0.08 + 0.15*math.Log(e.Beyond))
		e.Low, e.High = value/wide, value*wide
	}
	return e
}

// outlook approximates the sync loop: syncs follow one another with a period between them.
func (l lawful) outlook(c capacity.Cluster, scale float64, policy capacity.Policy, slos capacity.SLOs) capacity.Evaluation {
	n := float64(c.Services) * c.Endpoints
	partial := l.partial(n)
	rate := 1 / (policy.MinSyncPeriod.Seconds() + partial)
	p99 := policy.MinSyncPeriod.Seconds() + 2*partial
	o := capacity.Evaluation{Scale: scale, Size: float64(c.Services), Cluster: c, Policy: policy, P50: inSeconds(p99 / 2), P90: inSeconds(p99 * 0.9), P99: inSeconds(p99), SlowestP99: inSeconds(p99 * 1.1),
		SyncsPerSecond: rate, BusyShare: rate * partial, Rules: l.estimate(n, l.rules(n)), FullSync: l.estimate(n, l.full(n)), PartialSync: l.estimate(n, partial)}
	loop := func(v float64) capacity.Estimate {
		e := l.estimate(n, v)
		if e.Basis == model.Measured {
			e.Basis = model.Interpolated // the loop has no measured values
		}
		return e
	}
	o.Quantities = map[string]capacity.Estimate{capacity.ProgrammingP99: loop(p99), capacity.CPU: loop(rate * partial * 1.1), capacity.Memory: l.estimate(n, l.memory(n)),
		capacity.FirstPacketP99: l.estimate(n, l.packet(n)), capacity.Start: l.estimate(n, l.full(n))}
	for _, q := range sloQuantities {
		if b := slos.Bound(q.name); b > 0 && o.Quantities[q.name].High <= b {
			o.Met = append(o.Met, q.name)
		} else if b > 0 && o.Quantities[q.name].Median > b {
			o.Violated = append(o.Violated, q.name)
		}
	}
	return o
}

func inSeconds(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }

// grownBy is a cluster at a scale of a growth of 4 in Services and 1.5 in nodes.
func grownBy(c capacity.Cluster, scale float64) capacity.Cluster {
	c.Services = int(math.Round(float64(c.Services) * math.Pow(4, scale)))
	c.Nodes = int(math.Round(float64(c.Nodes) * math.Pow(1.5, scale)))
	c.Churn.Endpoints *= math.Pow(4, scale)
	return c
}

// limit searches for the size at which an SLO is violated.
func (l lawful) limit(today capacity.Cluster, name string, policy capacity.Policy, slos capacity.SLOs) capacity.Limit {
	reach := func(of func(capacity.Estimate) float64) float64 {
		for scale := 0.0; scale <= 4; scale += 0.01 {
			if of(l.outlook(grownBy(today, scale), scale, policy, slos).Quantities[name]) > slos.Bound(name) {
				return scale
			}
		}
		return math.NaN()
	}
	median := reach(func(e capacity.Estimate) float64 { return e.Median })
	out := capacity.Limit{SLO: name, Scale: median, Why: "partial sync grows with the endpoints"}
	switch {
	case math.IsNaN(median):
		out.Unbounded, out.Scale = true, 4
	case median == 0:
		out.Never = true
	}
	services := func(scale, otherwise float64) float64 {
		if math.IsNaN(scale) {
			scale = otherwise
		}
		return float64(grownBy(today, scale).Services)
	}
	out.Cluster = grownBy(today, out.Scale)
	at := l.outlook(out.Cluster, out.Scale, policy, slos).Quantities[name]
	out.Size = capacity.Estimate{Median: float64(out.Cluster.Services), Low: services(reach(func(e capacity.Estimate) float64 { return e.High }), 4),
		High: services(reach(func(e capacity.Estimate) float64 { return e.Low }), 4), Basis: at.Basis, Beyond: at.Beyond}
	return out
}

// answer is the subject's answer for today and four times as many Services.
func (l lawful) answer(q capacity.Question) capacity.SubjectAnswer {
	today, target := q.Today, grownBy(q.Today, 1)
	s := capacity.SubjectAnswer{Name: l.name, Today: l.outlook(today, 0, l.policy, q.SLOs)}
	at := l.outlook(target, 1, l.policy, q.SLOs)
	s.Target = &at
	for scale := 0.0; scale <= 2.01; scale += 0.25 {
		s.Curve = append(s.Curve, l.outlook(grownBy(today, scale), scale, l.policy, q.SLOs))
	}
	for _, slo := range sloQuantities {
		if q.SLOs.Bound(slo.name) > 0 {
			s.Limits = append(s.Limits, l.limit(today, slo.name, l.policy, q.SLOs))
		}
	}
	slices.SortStableFunc(s.Limits, func(a, b capacity.Limit) int { return int(a.Size.Median - b.Size.Median) })
	for _, period := range []time.Duration{100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second} {
		policy := l.policy
		policy.MinSyncPeriod = period
		one := capacity.Setting{Policy: policy, Outlook: l.outlook(target, 1, policy, q.SLOs)}
		one.Met = len(one.Outlook.Violated) == 0
		if one.Met || len(s.Frontier) == 0 {
			s.Recommended = one
		}
		s.Frontier = append(s.Frontier, one)
	}
	s.Largest = s.Limits[0]
	s.MemoryLimit = uint64(at.Quantities[capacity.Memory].High * 1.2)
	base := s.Largest.Size.Median
	s.Sensitivity = []capacity.Sensitivity{{Input: "endpoints", Lower: 0.5, Higher: 2, AtLower: base * 1.9, AtHigher: base / 1.95}, {Input: "cost", Lower: 0.8, Higher: 1.25, AtLower: base * 1.24, AtHigher: base / 1.24},
		{Input: "churn", Lower: 0.5, Higher: 2, AtLower: base * 1.1, AtHigher: base * 0.9}, {Input: "nodes", Lower: 0.5, Higher: 2, AtLower: base, AtHigher: base}}
	return s
}

// lawfulModel has the points that a calibration of the subjects would have. The page does not use its terms.
func lawfulModel() *model.Model {
	m := &model.Model{Run: "calibrate-1", Made: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Seed: 1, Confidence: 0.9, Feed: raw.FeedAPI,
		Versions: raw.Versions{Synclab: "v0.1", Go: "go1.26", Kernel: "6.18.0", IPTablesLegacy: "iptables v1.8.9 (legacy)", KubeProxy: "v1.36.3"},
		Machine:  raw.Machine{OS: "Debian", CPU: "AMD EPYC", CPUs: 2, MemoryBytes: 8 << 30}, Validation: &model.Validation{Confidence: 0.9}}
	for _, l := range lawfulSubjects {
		s := &model.Subject{Name: l.name, Terms: []model.Term{{Quantity: model.Total, Kind: model.Full, Form: model.Form{State: "line", X: "n"}, Coefficients: map[string]float64{"a": 0.05, "b": 4e-5}, Params: []float64{-3, -1},
			Largest: model.Range{Services: 4000, Total: 40000}, Points: 8, Score: 0.03, LargestOut: 0.05}}}
		for _, size := range [][2]float64{{250, 10}, {500, 4}, {500, 10}, {1000, 25}, {2000, 10}, {4000, 10}} {
			n := size[0] * size[1]
			for _, q := range []struct {
				quantity model.Quantity
				kind     string
				value    float64
			}{{model.Total, model.Full, l.full(n)}, {model.Total, model.Partial, l.partial(n)}, {model.PeakRSS, "", l.memory(n)}, {model.FirstPacket, "", l.packet(n)}, {model.Rules, "", l.rules(n)}} {
				changed := 0.0
				if q.kind == model.Partial {
					changed = 1
				}
				p := model.Point{Quantity: q.quantity, Kind: q.kind, Services: int(size[0]), Endpoints: size[1], Changed: changed, N: 3, Value: q.value}
				s.Points = append(s.Points, p)
				if size[0] >= 2000 {
					predicted := q.value * (1 + l.validationError*size[0]/4000)
					m.Validation.Rows = append(m.Validation.Rows, model.Validated{Subject: l.name, Point: p, FitUpTo: 1000, Error: predicted/q.value - 1, Covered: math.Abs(predicted/q.value-1) < 0.1,
						Predicted: model.Prediction{Median: predicted, Low: predicted * 0.9, High: predicted * 1.1, Basis: model.Extrapolated, Beyond: size[0] / 1000}})
				}
			}
		}
		m.Subjects = append(m.Subjects, s)
		m.Validation.Subjects = append(m.Validation.Subjects, model.ValidatedMean{Subject: l.name, Quantity: model.Total, Kind: model.Full, Points: 2, Error: math.Abs(l.validationError), Coverage: 1, Beyond: 4, FitUpTo: 1000, Largest: 4000})
	}
	return m
}

// lawfulAnswer is an answer for tests: four subjects, four times as many Services, five SLOs.
func lawfulAnswer() *capacity.Answer {
	q := capacity.Question{Today: capacity.Cluster{Services: 2000, Endpoints: 10, Nodes: 100, Churn: capacity.Churn{Endpoints: 20}}, Growth: capacity.Growth{Services: 4, Nodes: 1.5},
		SLOs: capacity.SLOs{ProgrammingP99: 2 * time.Second, FirstPacketP99: 20 * time.Microsecond, CPU: 0.3, Memory: 512 * mebi, Start: 10 * time.Second}, Seed: 7}
	target := grownBy(q.Today, 1)
	a := &capacity.Answer{Question: q, Unit: capacity.InServices, Target: &target, Model: lawfulModel(), Run: "calibrate-1", Command: "synclab plan --services 2000 --grow services=4x",
		Remarks: []string{"the calibration is of kube-proxy v1.36.3"}, Words: []string{"synclab/nftables meets all SLOs up to the largest evaluated size, kube-proxy/iptables-legacy up to 3,000 Services.", "The SLO for memory is violated first."}}
	for _, l := range lawfulSubjects {
		a.Subjects = append(a.Subjects, l.answer(q))
		if l.name != a.Subjects[0].Name {
			a.Comparisons = append(a.Comparisons, capacity.Comparison{From: a.Subjects[0].Name, To: l.name, Ratio: 2, Words: l.name + " reaches twice the size of " + a.Subjects[0].Name + ".",
				Crossings: []capacity.Crossing{{SLO: capacity.CPU, Always: true}, {SLO: capacity.Memory, Size: 9000, Basis: model.Extrapolated}}})
		}
	}
	return a
}
