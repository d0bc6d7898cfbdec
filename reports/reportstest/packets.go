package reportstest

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"synclab/bench/raw"
	"synclab/reports/records"
	"synclab/scenarios"
)

// Recorded is a run folder with given records.
type Recorded struct {
	Scenario scenarios.Scenario
	Reps     int
	Records  []raw.Record
}

// Write writes the run folder. The subjects are those of the records.
func (y Recorded) Write(t testing.TB, dir string) {
	t.Helper()
	started := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	finished := started.Add(20 * time.Minute)
	run := raw.Run{ID: y.Scenario.Name, Started: started, Finished: &finished, Status: "complete", Reps: y.Reps, Seed: 7, Feed: raw.FeedAPI,
		Command: "synclab compare " + y.Scenario.Name + " --seed 7", Scenario: y.Scenario,
		Versions: raw.Versions{Synclab: "v0.1.0", Go: "go1.26.8", Kernel: "6.18.0", IPTablesLegacy: "1.8.9", KubeProxy: "v1.36.3"},
		Machine:  raw.Machine{OS: "Debian GNU/Linux 12", CPU: "Example CPU @ 2.60GHz", CPUs: 2, MemoryBytes: 8 << 30}}
	for _, r := range y.Records {
		if !slices.Contains(run.Subjects, r.Subject) {
			run.Subjects = append(run.Subjects, r.Subject)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	head, err := json.Marshal(run)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "run.json"), head, 0o644); err != nil {
		t.Fatal(err)
	}
	var lines []byte
	for _, r := range y.Records {
		r.Scenario, r.Endpoints = y.Scenario.Name, 1
		if r.Unit == "s" {
			r.Value = math.Round(r.Value*1e9) / 1e9
		}
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(append(lines, line...), '\n')
	}
	if err := os.WriteFile(filepath.Join(dir, "records.jsonl"), lines, 0o644); err != nil {
		t.Fatal(err)
	}
}

// PacketModel is the cost of a packet with a subject: a first rule, and perRule for each rule that it crosses.
type PacketModel struct {
	Subject string
	first   float64
	PerRule float64
	rules   func(position int) float64
}

func listed(position int) float64 { return float64(position + 7) }
func flatly(position int) float64 { return float64(9 + position%3) }

var PacketModels = []PacketModel{
	{"kube-proxy/iptables-legacy", 3e-6, 5.3e-9, listed},
	{"kube-proxy/iptables-nft", 3.4e-6, 9.1e-9, listed},
	{"kube-proxy/nftables", 4e-6, 0, flatly},
	{"synclab/iptables-legacy", 2.9e-6, 5.2e-9, listed},
	{"synclab/iptables-legacy-tree", 3.1e-6, 0, flatly},
	{"synclab/iptables-nft", 3.3e-6, 9e-9, listed},
	{"synclab/iptables-nft-tree", 3.6e-6, 0, flatly},
	{"synclab/nftables", 3.5e-6, 0, flatly},
}

// TraversalRun is a run of all subjects: positions, miss, kinds of destinations, and flows between namespaces.
func TraversalRun(models []PacketModel, sizes []int, reps, samples int) Recorded {
	y := Recorded{Scenario: scenarios.Scenario{Name: "traversal", Description: "The cost of a first packet, by position and kind of destination."}, Reps: reps}
	random := rand.New(rand.NewPCG(3, 5))
	for _, n := range sizes {
		for rep := 1; rep <= reps; rep++ {
			for _, m := range models {
				y.packets(random, m, n, rep, samples)
			}
		}
	}
	return y
}

// packets adds the packets of one repetition.
func (y *Recorded) packets(random *rand.Rand, m PacketModel, n, rep, samples int) {
	put := func(metric raw.Metric, value float64, unit string, of raw.Record) {
		of.Subject, of.Services, of.Rep, of.Metric, of.Value, of.Unit, of.At = m.Subject, n, rep, metric, value, unit, 30
		y.Records = append(y.Records, of)
	}
	noisy := func(v float64) float64 {
		v += 2e-8 * math.Abs(random.NormFloat64())
		if random.IntN(40) == 0 {
			v += 3e-5 // an interrupt
		}
		return v
	}
	for i := -2; i <= 10; i++ {
		position := max(1, n*i/10)
		rules := m.rules(position)
		switch i {
		case -2:
			position, rules = 0, 0
		case -1:
			position, rules = -1, m.rules(n)-2
		default:
			for _, method := range records.FlowMethods {
				cost := map[string]float64{"handshake": 60e-6 + m.first + m.PerRule*rules, "echo": 40e-6 + m.first + m.PerRule*rules, "established": 25e-6}[method]
				for range samples / 4 {
					put(raw.FirstPacket, noisy(cost), "s", raw.Record{Position: &position, Method: method, Step: "4:probe"})
				}
			}
		}
		cost := m.first + m.PerRule*rules
		if position == 0 {
			cost = 1.8e-6
		} else {
			put(raw.RulesEvaluated, rules, "count", raw.Record{Position: &position, Step: "3:probe"})
		}
		for range samples {
			put(raw.FirstPacket, noisy(cost), "s", raw.Record{Position: &position, Method: "sendto", Step: "3:probe"})
		}
	}
	for i, target := range []string{"reject", "node-port", "external-ip", "load-balancer", "affinity-first", "affinity-again"} {
		zero, rules := 0, m.rules(n)+float64(i)
		put(raw.RulesEvaluated, rules, "count", raw.Record{Target: target, Step: "3:probe"})
		for range samples {
			put(raw.FirstPacket, noisy(1.9e-6), "s", raw.Record{Position: &zero, Target: target, Step: "3:probe"})
			put(raw.FirstPacket, noisy(m.first+m.PerRule*rules+float64(i)*1e-7), "s", raw.Record{Target: target, Step: "3:probe"})
		}
	}
}

// streamModel describes a subject under a stream: the duration of a full sync, and the shares of failed and misrouted
// flows.
type streamModel struct {
	subject           string
	full              float64
	Failing, straying float64 // share of the flows due during a full sync
	repaired          float64 // time to recover from a fault; 0 means never
}

var StreamModels = []streamModel{
	{"kube-proxy/iptables-legacy", 1.2, 0.02, 0.01, 25},
	{"kube-proxy/iptables-nft", 3, 0.03, 0.01, 0},
	{"kube-proxy/nftables", 2, 0.01, 0, 28},
	{"synclab/iptables-legacy", 0.5, 0, 0, 1.1},
	{"synclab/iptables-legacy-tree", 0.5, 0, 0, 1.2},
	{"synclab/iptables-nft", 0.9, 0, 0, 1.4},
	{"synclab/iptables-nft-tree", 0.9, 0, 0, 1.5},
	{"synclab/nftables", 0.2, 0, 0, 0.8},
}

var streamSteps = []string{"3:traffic", "4:settle", "5:churn", "6:settle", "7:rollout", "8:settle", "9:restart", "10:settle", "11:traffic"}

// StreamRun is a stream of new flows during steps that change the cluster, each stepSeconds long.
func StreamRun(models []streamModel, n, reps int, rate, stepSeconds float64) Recorded {
	y := Recorded{Scenario: scenarios.Scenario{Name: "disruption", Description: "A stream of new flows while the cluster changes."}, Reps: reps}
	random := rand.New(rand.NewPCG(11, 13))
	for rep := 1; rep <= reps; rep++ {
		for _, m := range models {
			w := streamWriter{y: &y, random: random, of: raw.Record{Subject: m.subject, Services: n, Rep: rep}}
			at := 10.0
			for _, step := range streamSteps {
				w.step(m, step, at, stepSeconds, rate)
				at += stepSeconds
			}
		}
	}
	return y
}

type streamWriter struct {
	y      *Recorded
	random *rand.Rand
	of     raw.Record
}

func (w *streamWriter) put(at float64, metric raw.Metric, value float64, unit string, more raw.Record) {
	more.Subject, more.Services, more.Rep = w.of.Subject, w.of.Services, w.of.Rep
	more.At, more.Metric, more.Value, more.Unit = at, metric, value, unit
	w.y.Records = append(w.y.Records, more)
}

// step writes one step: a full sync in its middle, unless the stream is at rest, and partial syncs around it.
func (w *streamWriter) step(m streamModel, name string, at, seconds, rate float64) {
	_, kind := scenarios.StepOf(name)
	busy := kind != "traffic" && kind != "settle"
	begin, end := math.Inf(1), math.Inf(-1)
	if busy {
		begin, end = at+seconds/3, at+seconds/3+m.full
		w.put(end, raw.FullSync, m.full, "s", raw.Record{Step: name, Kind: "full", Sync: 1})
		for i := range 3 {
			w.put(at+seconds/3*float64(i)+0.2, raw.PartialSync, 0.1, "s", raw.Record{Step: name, Kind: "partial", Sync: 2 + i})
		}
		w.put(at+1, raw.RemovedEndpointServing, 0.3+m.full*w.random.Float64(), "s", raw.Record{Step: name, Service: "ns/a:http"})
		w.put(at+1, raw.NewEndpointDelay, 0.2+m.full*w.random.Float64(), "s", raw.Record{Step: name, Service: "ns/a:http"})
	}
	for i := range int(rate * seconds) {
		due := at + float64(i)/rate
		value, outcome := 1.5e-4*math.Exp(0.3*w.random.NormFloat64()), ""
		if due > begin && due < end {
			value *= 4
			switch chance := w.random.Float64(); {
			case chance < m.straying:
				outcome = records.Misrouted
			case chance < m.straying+m.Failing:
				value, outcome = 1, []string{"timeout", "refused"}[w.random.IntN(2)]
			}
		}
		protocol := []string{"TCP", "UDP"}[i%2]
		w.put(due, raw.Flow, value, "s", raw.Record{Step: name, Protocol: protocol, Outcome: outcome, Service: "ns/a:http"})
		if i%50 == 0 {
			held := ""
			if outcome == records.Misrouted && protocol == "UDP" {
				held = records.Misrouted
			}
			w.put(due, raw.LongLivedFlow, 1e-4, "s", raw.Record{Step: name, Protocol: protocol, Outcome: held, Service: "ns/a:http"})
		}
	}
}

var FaultNames = []string{"restore-killed", "restore-fails", "rule-refused", "lock-held", "writer", "flush nat", "flush filter", "flush mangle", "flush all", "delete jump nat",
	"delete chain nat", "delete rule nat", "reference", "watch-dropped", "watch-stalled", "relist", "events-duplicated", "events-reordered", "slices-first", "api-down", "killed",
	"memory-limit", "conntrack-full", "clock-step", "addresses"}

// FaultRun has one fault after the other under a stream, each observed for at most 45 s, and then checks of
// invariants.
func FaultRun(models []streamModel, n, reps int, rate float64) Recorded {
	y := Recorded{Scenario: scenarios.Scenario{Name: "faults", Description: "One fault after the other, under a stream of new flows."}, Reps: reps}
	random := rand.New(rand.NewPCG(17, 19))
	for rep := 1; rep <= reps; rep++ {
		for _, m := range models {
			w := streamWriter{y: &y, random: random, of: raw.Record{Subject: m.subject, Services: n, Rep: rep}}
			w.step(m, "3:traffic", 5, 10, rate)
			at := 20.0
			for i, name := range FaultNames {
				if m.subject == "synclab/nftables" && i < 3 {
					continue // no tool that the fault could hit
				}
				at = w.fault(m, fmt.Sprintf("%d:fault", 4+2*i), name, at, rate)
			}
			for i := 1; i <= 13; i++ {
				number := fmt.Sprintf("I%d", i)
				w.put(at, raw.InvariantChecks, float64(100*i), "count", raw.Record{Step: "60:check", Invariant: number})
				if m.straying > 0 && (i == 3 || i == 9) {
					for range i {
						w.put(at, raw.Violation, 1, "count", raw.Record{Step: "60:check", Invariant: number, Service: "ns/a:http",
							Error: "service ns/a:http: 10.0.0.7:80 answered, allowed were 10.0.0.1:80 and 10.0.0.2:80; to see it again: synclab run faults --services 1000 --subjects " + m.subject + " --seed 7"})
					}
				}
			}
		}
	}
	return y
}

// fault writes one fault and its effects. It returns when the next fault may start.
func (w *streamWriter) fault(m streamModel, step, name string, at, rate float64) float64 {
	of := raw.Record{Step: step, Fault: step + " " + name}
	holds := 0.0
	if name == "lock-held" || name == "api-down" || name == "conntrack-full" {
		holds = 6
	}
	w.put(at, raw.FaultDuration, holds, "s", of)
	repaired, end := m.repaired, at+m.repaired
	if repaired == 0 || repaired == 28 && name == "flush all" {
		failed := of
		failed.Error = "not repaired within 45s"
		repaired, end = 45, at+45
		w.put(end, raw.FaultRepaired, 45, "s", failed)
	} else {
		w.put(at+repaired/3, raw.FaultDetected, repaired/3, "s", of)
		w.put(end, raw.FaultRepaired, repaired, "s", of)
	}
	for i := range int((repaired + 2) * rate) {
		due := at - 1 + float64(i)/rate
		value, outcome := 1.5e-4*math.Exp(0.3*w.random.NormFloat64()), ""
		if due > at && due < end && (name == "flush nat" || name == "flush all") {
			value, outcome = 1, "timeout"
		}
		w.put(due, raw.Flow, value, "s", raw.Record{Step: step, Protocol: "TCP", Outcome: outcome, Service: "ns/a:http"})
	}
	return end + 3
}
