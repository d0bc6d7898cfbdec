package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/machine"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/shim"
	"synclab/bench/subject"
	"synclab/bench/upstream"
	"synclab/proxier/iptables"
)

// loadModules makes iptables-legacy load its kernel modules, since a confined subject must not. Errors show when the
// subject calls the tool.
func (o *ExecuteOptions) loadModules(ctx context.Context) {
	if os.Geteuid() != 0 || !slices.ContainsFunc(o.running, func(s subject.Spec) bool { return s.Variant == iptables.Legacy }) {
		return
	}
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		if path, err := iptables.FindBinary(iptables.Binary(iptables.Legacy, family, "")); err == nil {
			_, _ = machine.TryTool(ctx, "", path, "-t", "nat", "-S")
		}
	}
}

// prepareTools finds or builds the tools that the subjects need.
func (o *ExecuteOptions) prepareTools(ctx context.Context, run *raw.Run) (err error) {
	versions := &run.Versions
	if o.Feed != raw.FeedAPI {
		if i := slices.IndexFunc(o.running, func(s subject.Spec) bool { return s.Proxier != subject.Synclab }); i >= 0 {
			return fmt.Errorf("subject %s is a separate process: use --feed %s", o.running[i].Name, raw.FeedAPI)
		}
		if i := slices.IndexFunc(o.running, func(s subject.Spec) bool { return s.OfProcess() }); i >= 0 {
			return fmt.Errorf("subject %s needs a separate process: use --feed %s", o.running[i].Name, raw.FeedAPI)
		}
		if o.MaxMemory > 0 {
			return fmt.Errorf("--max-memory needs --feed %s: with --feed %s everything measured runs inside the lab's own process", raw.FeedAPI, o.Feed)
		}
		return nil
	}
	o.loadModules(ctx)
	note := func(text string) { o.Progress(Progress{Stage: "prepare", Note: text}) }
	o.tools.KubeProxy = map[string]pass.Program{}
	for _, s := range o.running {
		if _, there := o.tools.KubeProxy[s.Version]; there || s.Proxier != subject.KubeProxy {
			continue
		}
		build := s.Build(o.KubeProxy)
		build.Progress = note
		path, version, err := upstream.KubeProxy(ctx, build)
		if err != nil {
			return fmt.Errorf("subject %s: %w", s.Name, err)
		}
		if o.tools.KubeProxy[s.Version] = (pass.Program{Path: path, Version: version}); s.Version == "" {
			versions.KubeProxy = version // the names of other subjects contain their versions
		}
	}
	if slices.ContainsFunc(o.running, func(s subject.Spec) bool { return s.Proxier == subject.Cilium }) {
		paths, err := upstream.Cilium(ctx, upstream.Options{Progress: note})
		if err != nil {
			return err
		}
		versions.Cilium = upstream.CiliumVersion
		o.tools.Cilium, o.tools.Sockets = pass.Program{Path: paths.Control, Version: versions.Cilium}, paths.Sockets
	}
	if o.tools.Shim, err = shim.Command(ctx); err != nil {
		return err
	}
	return o.noteDigests(run)
}

// noteDigests takes the digests of all programs that the run starts, for run.json and for the check at each start.
func (o *ExecuteOptions) noteDigests(run *raw.Run) error {
	programs := map[string]string{"shim": o.tools.Shim}
	for _, s := range o.running {
		switch s.Proxier {
		case subject.KubeProxy:
			name, _, _ := strings.Cut(s.Name, "/")
			programs[name] = o.tools.KubeProxy[s.Version].Path
		case subject.Cilium:
			programs["cilium"], programs["cilium sockets"] = o.tools.Cilium.Path, o.tools.Sockets
		case subject.Exec:
			programs[s.Name] = s.Command[0]
		}
	}
	for name, program := range programs {
		if err := o.noteDigest(run, name, program); err != nil {
			return err
		}
	}
	return nil
}

func (o *ExecuteOptions) noteDigest(run *raw.Run, name, program string) error {
	digest, err := o.tools.Note(program)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if run.Programs == nil {
		run.Programs = map[string]string{}
	}
	run.Programs[name] = digest
	return nil
}
