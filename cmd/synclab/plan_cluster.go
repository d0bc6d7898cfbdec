package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"synclab/cmd/synclab/planning"
	"synclab/cmd/synclab/terminal"
	"synclab/reports/capacity"
	"synclab/reports/doc"
	"synclab/sim"
	"synclab/sim/capture"
)

// planCluster are the flags that describe the cluster of today: numbers, or their sources.
type planCluster struct {
	uneven     string // how the Services of the dump differ from those of the cost model; set by read
	services   int
	endpoints  float64
	nodes      int
	churn      capacity.Churn
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
	flags.Float64Var(&f.endpoints, "endpoints", 0, fmt.Sprintf("`number` of endpoints of each Service, the mean (default: as counted, or %d)", defaultEndpoints))
	flags.IntVar(&f.nodes, "nodes", 0, fmt.Sprintf("`number` of nodes (default: as counted, or %d)", defaultNodes))
	flags.Float64Var(&f.churn.Endpoints, "churn", 0, "mean `rate` of EndpointSlice changes per second: pods that start, end, and become ready")
	flags.StringVar(&f.trace, "churn-from", "", "`file` with a recorded trace of a cluster ('synclab capture --for'): its changes are replayed in a loop, its snapshot is counted")
	flags.StringArrayVar(&f.earlier, "earlier", nil, "`file` with an earlier dump of the same cluster: objects that differ from -f or --kubeconfig changed within --earlier-age (repeatable)")
	flags.DurationVar(&f.earlierAge, "earlier-age", 0, "`time` between --earlier and the dump of today")
	flags.Float64Var(&f.churn.Services, "service-churn", 0, "mean `rate` of Service changes per second")
	flags.Float64Var(&f.churn.Swing, "churn-amplitude", 0, "amplitude of --churn within a day, as a `share` of its mean: with 0.5, the peak is 1.5 times the mean")
	flags.Float64Var(&f.churn.Rollouts, "rollouts", 0, "additional `number` of rollouts per hour, each of all endpoints of a Service")
	flags.Float64Var(&f.churn.NodeLosses, "node-losses", 0, "additional `number` of nodes per day that are lost with all their pods")
	f.manifests.register(cmd)
	flags.StringVar(&f.cluster.kubeconfig, "kubeconfig", "", "`file` of a real cluster whose objects are listed once and counted, read-only")
	f.cluster.registerExec(flags)
	flags.StringVar(&f.cluster.context, "context", "", "`context` of that file (default: its current one)")
	if err := errors.Join(cmd.MarkFlagFilename("kubeconfig"), cmd.MarkFlagFilename("churn-from", "jsonl"), cmd.MarkFlagFilename("earlier", "yaml", "yml", "json")); err != nil {
		panic(err)
	}
	for _, flag := range []string{"services", "endpoints", "nodes", "churn", "earlier-age", "service-churn", "churn-amplitude", "rollouts", "node-losses", "context"} {
		terminal.Complete(cmd, flag)
	}
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
	case given("services") && (f.services < 1 || f.services > capacity.MostServices):
		return badUsage(cmd, "--services %d: want 1 to %s", f.services, doc.Grouped(capacity.MostServices))
	case given("endpoints") && !(f.endpoints >= 0 && f.endpoints <= capacity.MostEndpoints):
		return badUsage(cmd, "--endpoints %s: want 0 to %s", planning.PlainNumber(f.endpoints), doc.Grouped(capacity.MostEndpoints))
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
		{"churn", f.churn.Endpoints, 1e6}, {"service-churn", f.churn.Services, 1e6}, {"churn-amplitude", f.churn.Swing, 1},
		{"rollouts", f.churn.Rollouts, 1e6}, {"node-losses", f.churn.NodeLosses, 1e6},
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

// read derives the cluster. notes name the sources of derived values, and are also remarks in the answer.
func (f *planCluster) read(ctx context.Context, cmd *cobra.Command, s streams) (c capacity.Cluster, notes []string, err error) {
	if err := f.check(cmd); err != nil {
		return c, nil, err
	}
	objects, from, err := f.objects(ctx, cmd, s)
	if err != nil {
		return c, nil, err
	}
	c.Churn = f.churn
	if f.trace != "" {
		recorded, err := planning.ReadTrace(ctx, f.trace)
		if err != nil {
			return c, nil, badInput(err)
		}
		notes = append(notes, recorded.String())
		c.Churn.Endpoints, c.Churn.Services, c.Churn.Trace = recorded.Rate(recorded.Slices), recorded.Rate(recorded.Services), recorded.Events
		if objects == nil {
			objects, from = recorded.Snapshot, f.trace
		}
	}
	given := cmd.Flags().Changed
	c.Endpoints, c.Nodes = defaultEndpoints, defaultNodes
	if objects != nil {
		counted := planning.CensusOf(objects)
		if counted.Ports == 0 && !given("services") {
			return c, nil, badInput(fmt.Errorf("%s: it has no Service that a Service proxy handles", from))
		}
		c.Services, c.Endpoints, c.Nodes = counted.Ports, counted.Endpoints, max(1, counted.Nodes)
		notes = append(notes, fmt.Sprintf("from %s: %s", from, counted))
		if uneven := counted.Uneven(); uneven != "" && !given("endpoints") {
			f.uneven = uneven
			notes = append(notes, uneven)
		}
	}
	if len(f.earlier) > 0 {
		rates, note, err := f.since(ctx, s, objects, from)
		if err != nil {
			return c, nil, err
		}
		if !given("service-churn") {
			c.Churn.Services = rates.Services
		}
		c.Churn.Endpoints = rates.Endpoints
		notes = append(notes, note)
	}
	if given("services") {
		c.Services = f.services
	}
	if given("endpoints") {
		c.Endpoints = f.endpoints
	}
	if given("nodes") {
		c.Nodes = f.nodes
	}
	return c, notes, nil
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
	objects, err := capture.Take(ctx, client, capture.TakeOptions{})
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
func (f *planCluster) since(ctx context.Context, s streams, now *sim.Objects, from string) (rates capacity.Churn, note string, err error) {
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
