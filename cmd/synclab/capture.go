package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"synclab/bench/outfile"
	"synclab/cmd/synclab/terminal"
	"synclab/sim"
	"synclab/sim/capture"
	"synclab/sim/live"
	"synclab/sim/manifests"
)

// captureOptions are the options of `synclab capture`.
type captureOptions struct {
	cluster   clusterFlags
	anonymize bool
	out       string
	force     bool
	length    time.Duration // of a trace; 0: a snapshot only
}

func newCapture(s streams) *cobra.Command {
	var o captureOptions
	cmd := &cobra.Command{
		Use:   "capture",
		Short: "Write the Services, EndpointSlices and Nodes of a cluster to a file",
		Long: `Capture lists the Services, EndpointSlices and Nodes of a cluster. It writes what a
Service proxy reads of them to a file for 'synclab run -f' and 'synclab rules -f'.
It only reads, and needs the right to list these three.

If the cluster keeps kube-proxy's configuration in a ConfigMap of kube-system, as
kubeadm and EKS do, and it may be read, it is written beside the file, as
NAME.kube-proxy.yaml. Commands that read the file with -f use it. With --force, one of
an earlier capture is replaced or removed.

--anonymize replaces names, zones, addresses, ranges, NodePorts and times by random
ones, consistently: the rules are as many and of the same shape. Nothing is kept
that could reverse it. The file still has the ports of Services and endpoints, the
numbers of objects, their relations, and the order in which they were created. By
these, people who know the cluster may recognize it, or recognize two captures of
the same cluster.

--for also watches the cluster for a time and writes a trace: the first state and
every change, with its time. 'synclab plan --churn-from' replays it.`,
		Example: `  synclab capture -o snapshot.yaml
  synclab capture --kubeconfig ~/.kube/config --context prod --anonymize -o snapshot.yaml
  synclab capture --for 30m -o trace.jsonl         # and what changes for half an hour
  synclab run -f snapshot.yaml                     # a run with that cluster`,
		Args: argCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.out == "" {
				return badUsage(cmd, "-o is missing: want a file, or - for stdout")
			}
			switch given := cmd.Flags().Changed("for"); {
			case given && o.length <= 0:
				return badUsage(cmd, "--for %v: want more than 0", o.length)
			case given && o.anonymize:
				return badUsage(cmd, "--for and --anonymize exclude each other: a trace has real names")
			}
			return runCapture(cmd.Context(), s, o)
		},
	}
	flags := cmd.Flags()
	o.cluster.register(cmd, "of the cluster (default: $KUBECONFIG, or ~/.kube/config)")
	flags.BoolVar(&o.anonymize, "anonymize", false, "replace names and addresses, irreversibly, and omit everything that rules do not depend on")
	flags.StringVarP(&o.out, "output", "o", "", "`file` to write, or - for stdout")
	flags.BoolVar(&o.force, "force", false, "replace the file, and the one with kube-proxy's configuration")
	flags.DurationVar(&o.length, "for", 0, "`time` to follow the cluster: write a trace, in lines of JSON, instead of a snapshot")
	return cmd
}

func runCapture(ctx context.Context, s streams, o captureOptions) error {
	if err := o.checkFiles(); err != nil {
		return err
	}
	cfg, err := o.cluster.restConfig()
	if err != nil {
		return err
	}
	cfg.QPS, cfg.Burst = 50, 100 // the pages of a list come one after the other, so the server sets the rate
	client, err := newClient(cfg, "application/vnd.kubernetes.protobuf")
	if err != nil {
		return err
	}
	if o.length > 0 {
		return recordTrace(ctx, s, client, cfg.Host, o.out, o.length)
	}
	objects, err := capture.Take(ctx, client, capture.PageSize)
	if err != nil {
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			err = fmt.Errorf("%w; capture needs the right to list services, endpointslices and nodes in all namespaces", err)
		}
		return err
	}
	var ranges *capture.Anonymized
	if o.anonymize {
		if ranges, err = capture.Anonymize(objects, rand.Reader); err != nil {
			return err
		}
		objects = ranges.Objects
	}
	write := func(w io.Writer) error { return manifests.WriteObjects(w, objects) }
	if o.out == "-" {
		err = write(terminal.Verbatim(s.out))
	} else {
		err = outfile.WriteWith(o.out, 0o600, write)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(s.err, "%d Services, %d EndpointSlices and %d Nodes of %s\n", len(objects.Services), len(objects.Slices), len(objects.Nodes), cfg.Host)
	if err := captureConfig(ctx, s, client, o); err != nil {
		return err
	}
	if ranges != nil {
		tellRanges(s.err, "Services are in", ranges.Services)
		tellRanges(s.err, "pods are in", ranges.Pods)
	}
	return nil
}

// checkFiles refuses to replace a file, before the cluster is read. Beside a snapshot that is the one of an earlier capture
// with kube-proxy's configuration, also if the new capture has none: commands with -f would use the earlier one.
func (o captureOptions) checkFiles() error {
	if o.out == "-" || o.force {
		return nil
	}
	files := []string{o.out}
	if o.length == 0 {
		files = append(files, capturedConfig(o.out))
	}
	for _, file := range files {
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			return badInput(fmt.Errorf("%s exists; --force replaces it", file))
		}
	}
	return nil
}

// captureConfig writes the cluster's kube-proxy ConfigMap beside the objects, where commands with -f find it. Without one
// it removes that of an earlier capture.
func captureConfig(ctx context.Context, s streams, client kubernetes.Interface, o captureOptions) error {
	empty := "it has addresses, which --anonymize cannot replace"
	var text []byte
	var err error
	switch {
	case o.anonymize:
	case o.out == "-":
		empty = "-o - writes the objects only"
	default:
		if text, empty, err = capture.ProxyConfig(ctx, client); err != nil {
			empty = err.Error() // the objects are written already
		}
	}
	path := capturedConfig(o.out)
	if text == nil {
		fmt.Fprintf(s.err, "without kube-proxy's configuration: %s; --proxy-config gives it later\n", empty)
		if o.out == "-" || !o.force {
			return nil
		}
		err := os.Remove(path)
		if err == nil {
			fmt.Fprintf(s.err, "removed %s, of an earlier capture\n", path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	if err := outfile.Write(path, text, 0o600); err != nil {
		return err
	}
	fmt.Fprintln(s.err, "kube-proxy's configuration:", path)
	return nil
}

// tellRanges prints ranges. A proxy's clusterCIDR is in its configuration, not in the objects, and must match them.
func tellRanges(w io.Writer, what string, ranges []netip.Prefix) {
	for _, r := range ranges {
		fmt.Fprintln(w, what, r)
	}
}

// recordTrace follows a cluster for some time. It writes to out, as lines of JSON, the first state and every change.
// When ctx ends, it ends early without an error.
func recordTrace(ctx context.Context, s streams, client kubernetes.Interface, host, out string, length time.Duration) error {
	var summary live.Summary
	var took time.Duration
	write := func(w io.Writer) error {
		encoder := live.NewEncoder(w)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var began time.Time
		begun := false
		follow := live.Options{
			Snapshot: func(o *sim.Objects) error {
				begun, began = true, time.Now()
				time.AfterFunc(length, cancel)
				fmt.Fprintf(s.err, "%d Services, %d EndpointSlices and %d Nodes of %s; following them for %v, or until Ctrl-C\n", len(o.Services), len(o.Slices), len(o.Nodes), host, length)
				return encoder.Snapshot(o)
			},
			Change:  encoder.Change,
			Trouble: func(err error) { fmt.Fprintln(s.err, "follow the cluster:", err) },
		}
		var err error
		summary, err = live.Follow(ctx, client, follow)
		if err == nil && !begun {
			return errors.Join(errors.New("interrupted before all objects were listed"), ctx.Err())
		}
		took = time.Since(began)
		return err
	}
	var err error
	if out == "-" {
		err = write(s.out)
	} else {
		err = outfile.WriteWith(out, 0o600, write)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(s.err, "%v:\n%s", took.Round(time.Second), &summary)
	return nil
}
