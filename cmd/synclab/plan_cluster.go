package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/bench/lab/machine"
	"synclab/bench/lab/upstream"
	"synclab/cmd/synclab/planning"
	"synclab/reports/doc"
	"synclab/reports/plan"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/capture"
	"synclab/sim/manifests"
	"synclab/sim/world"
)

// planCluster are the flags that describe the cluster of today: numbers, or their sources.
type planCluster struct {
	services   int
	endpoints  int
	sets       []string
	nodes      int
	churn      plan.Churn
	trace      string
	earlier    []string
	earlierAge time.Duration
	manifests  manifestFlags
	cluster    clusterFlags
}

// Defaults.
const (
	defaultEndpoints = 10
	defaultNodes     = 1000
)

func (f *planCluster) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&f.services, "services", 0, "`number` of Services today (default: those of -f, --kubeconfig or --churn-from)")
	flags.IntVar(&f.endpoints, "endpoints", 0, fmt.Sprintf("`number` of endpoints of each Service (default: %d)", defaultEndpoints))
	// Not a StringSlice: a value may contain commas.
	flags.StringArrayVar(&f.sets, "set", nil, "set a field of scenario plan: `field=value`, e.g. shape.endpoints.distribution=zipf, shape.protocols.UDP=0.5 or shape.families=[IPv4,IPv6] (repeatable)")
	flags.IntVar(&f.nodes, "nodes", 0, fmt.Sprintf("`number` of nodes (default: as counted, or %d)", defaultNodes))
	flags.Float64Var(&f.churn.Endpoints, "churn", 0, "mean `rate` of EndpointSlice changes per second: pods that start, end, and become ready")
	flags.StringVar(&f.trace, "churn-from", "", "`file` with a recorded trace of a cluster ('synclab capture --for'): its changes are replayed in a loop, and its snapshot is the cluster")
	flags.StringArrayVar(&f.earlier, "earlier", nil, "`file` with an earlier dump of the same cluster: objects that differ from -f or --kubeconfig changed within --earlier-age (repeatable)")
	flags.DurationVar(&f.earlierAge, "earlier-age", 0, "`time` between --earlier and the dump of today")
	flags.Float64Var(&f.churn.Services, "service-churn", 0, "mean `rate` of Service changes per second")
	flags.Float64Var(&f.churn.Swing, "churn-amplitude", 0, "amplitude of --churn within a day, as a `share` of its mean: with 0.5, the peak is 1.5 times the mean")
	flags.Float64Var(&f.churn.Rollouts, "rollouts", 0, "additional `number` of rollouts per hour, each of all endpoints of a Service")
	flags.Float64Var(&f.churn.NodeLosses, "node-losses", 0, "additional `number` of nodes per day that are lost with all their pods")
	f.manifests.register(cmd)
	f.cluster.register(cmd, "of a real cluster whose objects are listed once, read-only")
	cmd.MarkFlagsMutuallyExclusive("churn", "churn-from", "earlier")
	cmd.MarkFlagsMutuallyExclusive("filename", "kubeconfig")
	moreFlags(cmd, "churn-from", "earlier", "earlier-age", "service-churn", "churn-amplitude", "rollouts", "node-losses", "context", "allow-exec-plugins")
}

// check refuses contradicting flags before anything is read.
func (f *planCluster) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	dump := len(f.manifests.paths) > 0
	switch {
	case !given("services") && !dump && !given("kubeconfig") && !given("churn-from"):
		return badUsage(cmd, "the size of the cluster today is missing: want --services NUMBER, -f DUMP, --kubeconfig FILE or --churn-from TRACE")
	case given("services") && (f.services < 1 || f.services > scenarios.MaxServices):
		return badUsage(cmd, "--services %d: want 1 to %s", f.services, doc.Grouped(scenarios.MaxServices))
	case given("endpoints") && f.endpoints < 1:
		return badUsage(cmd, "--endpoints %d: want at least 1", f.endpoints)
	case (given("endpoints") || given("set")) && (dump || given("kubeconfig") || given("churn-from")):
		return badUsage(cmd, "--endpoints and --set are for a generated cluster: a dump has a shape of its own")
	case given("nodes") && f.nodes < 1:
		return badUsage(cmd, "--nodes %d: want at least 1", f.nodes)
	case !given("churn") && !given("churn-from") && !given("earlier"):
		return badUsage(cmd, "the rate of endpoint changes is missing: want --churn RATE (per second), --churn-from TRACE, or --earlier DUMP --earlier-age TIME")
	case given("earlier") && !dump && !given("kubeconfig"):
		return badUsage(cmd, "--earlier needs the dump of today: name it with -f or --kubeconfig")
	case given("earlier") && f.earlierAge <= 0:
		return badUsage(cmd, "--earlier-age is missing: want the time between --earlier and the dump of today, e.g. 10m")
	case given("earlier-age") && !given("earlier"):
		return badUsage(cmd, "--earlier-age is for --earlier, which is not given")
	}
	for _, number := range []struct {
		flag  string
		value float64
		most  float64
	}{
		{"churn", f.churn.Endpoints, 1e5}, {"service-churn", f.churn.Services, 1e5}, {"churn-amplitude", f.churn.Swing, 1},
		{"rollouts", f.churn.Rollouts, 1e5}, {"node-losses", f.churn.NodeLosses, 1e5},
	} {
		if !(number.value >= 0 && number.value <= number.most) {
			return badUsage(cmd, "--%s %v: want 0 to %s", number.flag, number.value, planning.PlainNumber(number.most))
		}
		if number.flag != "churn" && given(number.flag) && given("churn-from") {
			return badUsage(cmd, "--%s has no meaning with --churn-from: the trace has all changes", number.flag)
		}
	}
	return nil
}

// planInput makes the cells of a plan.
type planInput struct {
	today   plan.Cluster
	shape   string       // in words
	objects *sim.Objects // nil: the cluster is generated
	sets    []string     // of a generated one

	// Set when the question is known.
	asked         plan.Cluster
	timeout       time.Duration
	minSyncPeriod time.Duration
	writers       bool // other programs write rules at the end of each cell
	seed          uint64
	without       int // node ports that copies lack, at most
	largest       int // Services of the largest cell so far
}

// read reads the cluster of today. notes name the sources of derived values, and are also remarks in the answer.
func (f *planCluster) read(ctx context.Context, cmd *cobra.Command, s streams) (in *planInput, notes []string, err error) {
	if err := f.check(cmd); err != nil {
		return nil, nil, err
	}
	objects, from, err := f.objects(ctx, cmd, s)
	if err != nil {
		return nil, nil, err
	}
	in = &planInput{sets: f.sets}
	c := &in.today
	c.Churn = f.churn
	if f.trace != "" {
		recorded, err := planning.ReadTrace(ctx, f.trace)
		if err != nil {
			return nil, nil, badInput(err)
		}
		notes = append(notes, recorded.String())
		c.Churn.Endpoints, c.Churn.Services, c.Churn.Trace = recorded.Rate(recorded.Slices), recorded.Rate(recorded.Services), recorded.Due
		if objects == nil {
			objects, from = recorded.Snapshot, f.trace
		}
	}
	given := cmd.Flags().Changed
	if objects == nil {
		c.Services, c.Endpoints, c.Nodes = f.services, defaultEndpoints, defaultNodes
		if given("endpoints") {
			c.Endpoints = float64(f.endpoints)
		}
		s, err := scenarios.Load(planScenario, f.sets, scenarios.Sizes{Services: f.services, Endpoints: int(c.Endpoints)})
		if err != nil {
			return nil, nil, badInput(err)
		}
		c.Endpoints = s.Shape.Endpoints.Mean()
		in.shape = planning.PlainNumber(c.Endpoints) + " endpoints each"
		if len(f.sets) > 0 {
			in.shape += ", " + strings.Join(f.sets, ", ")
		}
	} else {
		counted := planning.CensusOf(objects)
		if counted.Services == 0 {
			return nil, nil, badInput(fmt.Errorf("%s: it has no Service that a Service proxy handles", from))
		}
		in.objects, in.shape = objects, "the mix of "+from
		c.Services, c.Endpoints, c.Nodes = counted.Services, counted.Endpoints, max(1, counted.Nodes)
		notes = append(notes, fmt.Sprintf("from %s: %s", from, counted))
		if given("services") {
			c.Services = f.services
		}
	}
	if len(f.earlier) > 0 {
		rates, note, err := f.since(ctx, s, objects, from)
		if err != nil {
			return nil, nil, err
		}
		if !given("service-churn") {
			c.Churn.Services = rates.Services
		}
		c.Churn.Endpoints = rates.Endpoints
		notes = append(notes, note)
	}
	if given("nodes") {
		c.Nodes = f.nodes
	}
	return in, notes, nil
}

// planScenario is the scenario of every cell.
const planScenario = "plan"

// A burst has as many changes as this time brings, so that the syncs of long minSyncPeriods are known, and the one after an
// hourly full sync, within limits.
const (
	burstOf                    = 30 // s
	fewestOfBurst, mostOfBurst = 10, 1000
)

// cell returns the scenario of a size, and its objects if the cluster is given.
func (in *planInput) cell(size int) (s scenarios.Scenario, objects *sim.Objects, err error) {
	c := in.asked.At(size)
	loaded, err := scenarios.Load(planScenario, in.sets, scenarios.Sizes{Services: size, Endpoints: max(1, int(math.Round(c.Endpoints))), Seed: &in.seed})
	if err != nil {
		return s, nil, badInput(err)
	}
	s = *loaded
	s.Proxy.MinSyncPeriod = in.minSyncPeriod
	if in.objects != nil {
		without := 0
		objects, without = sim.Resize(in.objects, size)
		in.without, in.largest = max(in.without, without), max(in.largest, size)
	}
	rate := c.Churn.Endpoints + c.Churn.Services
	settle := s.Steps[plan.StepBurst+1]
	if rate == 0 {
		s.Steps[plan.StepChurn], s.Steps[plan.StepChurn+1] = scenarios.Step{}, scenarios.Step{}
	} else {
		s.Steps[plan.StepChurn].Churn.Rate, s.Steps[plan.StepChurn].Churn.Events = rate, max(1, int(math.Round(rate*plan.ChurnSeconds)))
	}
	s.Steps[plan.StepBurst].Churn.Events = min(mostOfBurst, max(fewestOfBurst, int(c.Rate()*burstOf)), max(1, size))
	if c.Churn.Rollouts > 0 {
		s.Steps = append(s.Steps, scenarios.Step{Rollout: &scenarios.Rollout{Services: 1, Surge: 0.25, Interval: time.Second}}, settle)
	}
	if c.Churn.NodeLosses > 0 {
		s.Steps = append(s.Steps, scenarios.Step{NodeLoss: &scenarios.NodeLoss{Nodes: 1}}, settle)
	}
	if in.writers { // last, since they cost the proxier something too, and until they are cleared
		s.Steps = append(s.Steps, scenarios.Step{Fault: &scenarios.Fault{Kind: scenarios.FaultWriter, For: 2*in.timeout + time.Hour}},
			scenarios.Step{Restart: &scenarios.Restart{}}, settle, scenarios.Step{Fault: &scenarios.Fault{Kind: scenarios.FaultClear}})
	}
	s.SetTimeouts(in.timeout)
	return s, objects, nil
}

// remarks are caveats about the cells.
func (in *planInput) remarks() (out []string) {
	if in.objects != nil && in.largest > planning.CensusOf(in.objects).Services {
		out = append(out, "Sizes above that of the dump have copies of its Services, with addresses from other ranges and further node ports.")
	}
	if in.without > 0 {
		out = append(out, fmt.Sprintf("%s ports of copies have no node port, since a node has only 65,535.", doc.Grouped(int64(in.without))))
	}
	if in.today.Churn.Services > 0 {
		out = append(out, "Changes of Services were measured as changes of EndpointSlices.")
	}
	return out
}

// key is a digest of what decides what a cell measures, besides its size.
func (in *planInput) key(ctx context.Context, q *plan.Question, base scenarios.Scenario, cfg *v1alpha1.KubeProxyConfiguration, kubeProxy, execConfig string, execEnv []string, profile bool) (string, error) {
	h := sha256.New()
	base.Shape.Services = 0
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	own, err := upstream.Digest(program)
	if err != nil {
		return "", err
	}
	// Rates are of each Service, rounded: equal questions about grown clusters have the same.
	churn := q.Asked.Churn
	rate := func(v float64) string { return fmt.Sprintf("%.9g", v/float64(q.Asked.Services)) }
	if err := json.NewEncoder(h).Encode([]any{base.Shape, base.Proxy, cfg, q.Seed, rate(churn.Endpoints + churn.Services), rate(churn.Rollouts), rate(churn.NodeLosses), rate(float64(q.Asked.Nodes)),
		machine.DetectVersions(ctx), machine.DetectMachine(), own, kubeProxy, execConfig, execEnv, profile, in.writers}); err != nil {
		return "", err
	}
	if in.objects != nil {
		if err := manifests.WriteObjects(h, in.objects); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// mostPlanned is the number of Services of the largest cluster that can be made.
func mostPlanned(q *plan.Question) int {
	return min(scenarios.MaxServices, int(scenarios.MaxTotalEndpoints/max(1, q.Asked.Endpoints)))
}

// sliceBytes is the mean size of an encoded EndpointSlice.
func sliceBytes(s scenarios.Scenario, objects *sim.Objects) float64 {
	if objects == nil {
		const enough = 200 // Services
		s.Shape.Services = min(s.Shape.Services, enough)
		var err error
		if objects, err = world.Generate(s.Shape, s.Seed); err != nil {
			return 0
		}
	}
	total := 0
	for _, slice := range objects.Slices {
		total += slice.Size()
	}
	return float64(total) / float64(max(1, len(objects.Slices)))
}

// objects returns the objects of the dump or of the cluster, nil without either, and the name of their source.
func (f *planCluster) objects(ctx context.Context, cmd *cobra.Command, s streams) (*sim.Objects, string, error) {
	if !cmd.Flags().Changed("kubeconfig") {
		objects, err := f.manifests.read(ctx, s)
		return objects, dumpName(f.manifests.paths), err
	}
	client, err := f.cluster.client()
	if err != nil {
		return nil, "", err
	}
	fmt.Fprintln(s.err, "listing the Services, EndpointSlices and Nodes of the cluster")
	objects, err := capture.Take(ctx, client, capture.PageSize)
	return objects, "the cluster", err
}

// dumpName is the name of some files in messages.
func dumpName(paths []string) string {
	var names []string
	for _, path := range paths {
		if path == "-" {
			path = "stdin"
		}
		names = append(names, path)
	}
	return strings.Join(names, ", ")
}

// since returns the rate of changes since the earlier dump: a lower bound.
func (f *planCluster) since(ctx context.Context, s streams, now *sim.Objects, from string) (rates plan.Churn, note string, err error) {
	before, err := (&manifestFlags{paths: f.earlier, flags: f.manifests.flags}).read(ctx, s)
	if err != nil {
		return rates, "", badInput(fmt.Errorf("--earlier: %w", err))
	}
	slices, services := planning.ChangedBetween(before, now)
	rates.Endpoints, rates.Services = float64(slices)/f.earlierAge.Seconds(), float64(services)/f.earlierAge.Seconds()
	note = fmt.Sprintf("between %s and %s, %v apart: %s EndpointSlices and %s Services differ: at least %s changes a second (repeated changes count once, reverted ones not at all)",
		dumpName(f.earlier), from, f.earlierAge, doc.Grouped(int64(slices)), doc.Grouped(int64(services)), planning.PlainNumber(rates.Endpoints+rates.Services))
	return rates, note, nil
}
