package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"synclab/bench/lab/temporary"
	"synclab/bench/outfile"
	"synclab/cmd/synclab/terminal"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/api"
	"synclab/sim/front"
	"synclab/sim/world"
)

// defaultListen is the default address of `synclab serve`.
const defaultListen = "127.0.0.1:0"

// serveOptions are the options of `synclab serve`, read and checked.
type serveOptions struct {
	scenario   *scenarios.Scenario
	objects    *sim.Objects // nil: the cluster is generated from the scenario's shape
	listen     string
	kubeconfig string  // file to write; empty: a temporary one
	churn      float64 // changes a second
	verbose    bool
}

func newServe(s streams) *cobra.Command {
	var (
		scenario  scenarioFlags
		manifests manifestFlags
		anywhere  bool
		o         serveOptions
	)
	cmd := &cobra.Command{
		Use:   "serve [SCENARIO | FILE.yaml]",
		Short: "Serve a simulated cluster's Kubernetes API, for any client",
		Long: `Serve makes the first cluster of a scenario, or reads one from files. It serves the
Kubernetes API of that cluster until Ctrl-C: list, get and watch of Services,
EndpointSlices, Nodes, Namespaces and ServiceCIDRs, in JSON and protobuf. Clients
may write Events, and nothing else. It prints the path of a kubeconfig for kubectl,
kube-proxy or your own controller.

The kubeconfig has a certificate, and a token that every request needs; both are new
each time. Without --anywhere, serve listens only on loopback addresses.`,
		Example: `  synclab serve --services 10000 --endpoints 10
  synclab serve mixed-types --churn 100 --kubeconfig-out lab.kubeconfig
  kubectl get svc,endpointslices -A -o yaml | synclab serve -f -
  synclab serve --listen 127.0.0.1:8001 --verbose`,
		Args: argCount(0, 1, "a scenario"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkListen(cmd, o.listen, anywhere); err != nil {
				return err
			}
			if o.churn < 0 {
				return badUsage(cmd, "--churn %g: want a rate of 0 or more", o.churn)
			}
			if flag := scenario.given(cmd); flag != "" && len(manifests.paths) > 0 {
				return badUsage(cmd, "--%s is for a generated cluster: it has no meaning with -f", flag)
			}
			var err error
			if o.scenario, err = scenario.load(cmd, args); err != nil {
				return err
			}
			if o.objects, err = manifests.read(cmd.Context(), s); err != nil {
				return err
			}
			return serve(cmd.Context(), s, o)
		},
	}
	scenario.register(cmd)
	manifests.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.listen, "listen", defaultListen, "`address:port` to listen on; port 0: any free port")
	flags.BoolVar(&anywhere, "anywhere", false, "allow --listen on an address that other machines can reach")
	flags.StringVar(&o.kubeconfig, "kubeconfig-out", "", "`file` to write the kubeconfig to (default: a temporary one, removed at the end)")
	flags.Float64Var(&o.churn, "churn", 0, "`rate` of changes per second, until Ctrl-C; their kind is that of the scenario's churn")
	flags.BoolVarP(&o.verbose, "verbose", "v", false, "print a line for each request; for a watch, when it ends")
	return cmd
}

// checkListen requires a loopback address, unless anywhere is set.
func checkListen(cmd *cobra.Command, listen string, anywhere bool) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return badUsage(cmd, "--listen %q: want address:port, such as %s", listen, defaultListen)
	}
	addr, err := netip.ParseAddr(host)
	if local := host == "localhost" || err == nil && addr.IsLoopback(); !local && !anywhere {
		return badUsage(cmd, "--listen %s: other machines may reach it; use a loopback address, or add --anywhere", listen)
	}
	return nil
}

// serve runs the fake API server until ctx ends.
func serve(ctx context.Context, s streams, o serveOptions) error {
	// Listen first, to report an address in use at once.
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	world, err := o.world(ctx, s)
	if err != nil {
		return err
	}
	cluster := api.NewCluster(clock.RealClock{})
	defer cluster.Stop()
	objects := world.Objects()
	if err := cluster.Load(ctx, objects); err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return err
	}
	credentials, err := front.NewCredentials(host, "localhost")
	if err != nil {
		return err
	}
	options := front.Options{ServiceCIDRs: o.scenario.Shape.ServiceCIDRs, Token: credentials.Token, MaxWatches: 1000}
	if o.objects != nil {
		options.ServiceCIDRs = nil
	} else {
		options.Shift = time.Since(newest(objects))
	}
	if o.verbose {
		options.Answered = requestLines(s)
	}
	f, err := front.New(cluster, options)
	if err != nil {
		return err
	}
	defer f.Close()
	path, remove, err := o.writeKubeconfig("https://"+listener.Addr().String(), credentials)
	if err != nil {
		return err
	}
	defer remove()
	fmt.Fprintf(s.err, "%d Services, %d EndpointSlices and %d Nodes at https://%s until Ctrl-C\n",
		len(objects.Services), len(objects.Slices), len(objects.Nodes), listener.Addr())
	fmt.Fprintf(s.err, "try:  kubectl --kubeconfig %s get svc -A\n", path)
	fmt.Fprintln(s.out, path)
	return o.run(ctx, s, f, credentials.Secure(listener), cluster, world)
}

// newest returns the time when the last object of a generated cluster was created, in the cluster's own time.
func newest(o *sim.Objects) time.Time {
	at := world.Epoch
	for _, service := range o.Services {
		if created := service.CreationTimestamp.Time; created.After(at) {
			at = created
		}
	}
	return at
}

// run serves and churns until ctx ends or one of the two fails.
func (o *serveOptions) run(ctx context.Context, s streams, f *front.Front, l net.Listener, cluster *api.Cluster, world *world.World) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var both sync.WaitGroup
	if o.churn > 0 {
		fmt.Fprintf(s.err, "%g changes a second\n", o.churn)
		both.Go(func() {
			if err := o.keepChanging(ctx, cluster, world); ctx.Err() == nil {
				cancel(err)
			}
		})
	}
	err := f.Serve(ctx, l)
	cancel(nil)
	both.Wait()
	if err != nil {
		return err
	}
	if cause := context.Cause(ctx); cause != context.Canceled {
		return cause
	}
	return ctx.Err()
}

// world generates the cluster, or uses the objects that were read.
func (o *serveOptions) world(ctx context.Context, s streams) (*world.World, error) {
	if o.objects != nil {
		return world.WorldOf(o.objects, o.scenario.Seed), nil
	}
	world, err := world.NewWorld(o.scenario.Shape, o.scenario.Seed)
	if err != nil {
		return nil, badInput(err)
	}
	total := o.scenario.Shape.Services
	shown := terminal.NewCounter(s.err, fmt.Sprintf("generating %d Services", total), total)
	defer shown.End()
	const chunk = 500
	for done := 0; done < total; done += chunk {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if _, err := world.Create(scenarios.Create{Services: min(chunk, total-done)}); err != nil {
			return nil, badInput(err)
		}
		shown.Show(min(done+chunk, total), total)
	}
	return world, nil
}

// keepChanging churns until ctx ends.
func (o *serveOptions) keepChanging(ctx context.Context, cluster *api.Cluster, world *world.World) error {
	step := scenarios.Churn{Rate: o.churn}
	for _, planned := range o.scenario.Steps {
		if planned.Churn != nil {
			step.Kind, step.Arrivals = planned.Churn.Kind, planned.Churn.Arrivals
			break
		}
	}
	// Plan one second of changes at a time: a plan already advances the world.
	step.Events = max(1, int(step.Rate))
	start := time.Now()
	for {
		trace, err := world.Churn(step)
		if err != nil {
			return err
		}
		if err := cluster.Play(ctx, trace, api.PlayOptions{Start: start}); err != nil {
			return err
		}
		start = start.Add(time.Duration(float64(step.Events) / step.Rate * float64(time.Second)))
	}
}

// writeKubeconfig returns the file, and a function that removes it if it is a temporary one.
func (o *serveOptions) writeKubeconfig(server string, credentials *front.Credentials) (string, func(), error) {
	data, err := front.Kubeconfig(server, credentials)
	if err != nil {
		return "", nil, err
	}
	if o.kubeconfig != "" {
		return o.kubeconfig, func() {}, outfile.Write(o.kubeconfig, data, 0o600)
	}
	_, _ = temporary.Sweep(os.TempDir()) // a failed sweep does not prevent serving
	dir, err := temporary.New("")
	if err != nil {
		return "", nil, err
	}
	path := filepath.Join(dir.Path, "kubeconfig")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return "", nil, errors.Join(err, dir.Remove())
	}
	return path, func() { _ = dir.Remove() }, nil
}

// requestLines prints each request when it has been answered.
func requestLines(s streams) func(front.Request) {
	var mu sync.Mutex
	return func(r front.Request) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(s.err, "%s %s %s %d %s %q\n", r.Began.Format("15:04:05.000"), r.Method, r.URI, r.Code, r.Took.Round(time.Microsecond), r.UserAgent)
	}
}
