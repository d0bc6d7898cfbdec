package bench

import (
	"context"
	"fmt"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/shim"
	"synclab/bench/upstream"
	"synclab/proxier/iptables"
)

// tools are the programs that a run needs beside this one, found or built before any namespace is entered: in there is
// no network, and HOME may be another.
type tools struct {
	KubeProxy string // path; empty when no subject needs it
	Shim      string // path; empty with FeedInformers
}

// loadModules lets iptables-legacy load its kernel modules, which a confined subject may not do. Errors show when the subject
// calls the tool.
func (o *ExecuteOptions) loadModules(ctx context.Context) {
	if os.Geteuid() != 0 || !slices.ContainsFunc(o.parsed, func(s Subject) bool { return s.Variant == iptables.Legacy }) {
		return
	}
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		if path, err := iptables.FindBinary(iptables.Binary(iptables.Legacy, family, "")); err == nil {
			_, _ = tryTool(ctx, "", path, "-t", "nat", "-S")
		}
	}
}

// prepareTools finds or builds what the subjects need.
func (o *ExecuteOptions) prepareTools(ctx context.Context, versions *Versions) (err error) {
	if o.Feed != FeedAPI {
		if i := slices.IndexFunc(o.parsed, func(s Subject) bool { return s.Proxier != Synclab }); i >= 0 {
			return fmt.Errorf("subject %s is a process of its own: it needs the feed %q", o.parsed[i].Name, FeedAPI)
		}
		if i := slices.IndexFunc(o.parsed, func(s Subject) bool { return s.ofProcess() }); i >= 0 {
			return fmt.Errorf("subject %s has settings of a process of its own: it needs the feed %q", o.parsed[i].Name, FeedAPI)
		}
		if o.MaxMemory > 0 {
			return fmt.Errorf("a bound of memory needs the feed %q: with %q all that is measured runs inside the lab's own process", FeedAPI, o.Feed)
		}
		return nil
	}
	o.loadModules(ctx)
	note := func(text string) { o.Progress(Progress{Stage: "prepare", Note: text}) }
	if slices.ContainsFunc(o.parsed, func(s Subject) bool { return s.Proxier == KubeProxy }) {
		build := o.KubeProxy
		build.Progress = note
		if o.tools.KubeProxy, versions.KubeProxy, err = upstream.KubeProxy(ctx, build); err != nil {
			return err
		}
	}
	o.tools.Shim, err = shim.Command(ctx)
	return err
}
