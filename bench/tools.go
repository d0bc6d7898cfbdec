package bench

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/bench/lab/machine"
	"synclab/bench/lab/shim"
	"synclab/bench/lab/temporary"
	"synclab/bench/lab/upstream"
	"synclab/bench/outfile"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/proxier/config"
	"synclab/proxier/iptables"
)

// loadModules makes iptables-legacy load its kernel modules, since a confined subject must not. Errors show when the
// subject calls the tool.
func (o *ExecuteOptions) loadModules(ctx context.Context) {
	if os.Geteuid() != 0 || !slices.ContainsFunc(o.running, subject.Spec.Legacy) {
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
	if err := o.noteOwn(run); err != nil {
		return err
	}
	if o.Feed != raw.FeedAPI {
		if i := slices.IndexFunc(o.running, func(s subject.Spec) bool { return !s.Own }); i >= 0 {
			return fmt.Errorf("subject %s is a separate process: use --feed %s", o.running[i].Name, raw.FeedAPI)
		}
		if i := slices.IndexFunc(o.running, subject.Spec.OfProcess); i >= 0 {
			return fmt.Errorf("subject %s needs a separate process: use --feed %s", o.running[i].Name, raw.FeedAPI)
		}
		if o.MaxMemory > 0 {
			return fmt.Errorf("--max-memory needs --feed %s: with --feed %s everything measured runs inside the lab's own process", raw.FeedAPI, o.Feed)
		}
		return nil
	}
	o.loadModules(ctx)
	note := func(text string) { o.Progress(Progress{Stage: "prepare", Note: text}) }
	o.tools.Programs = map[string]pass.Program{}
	for _, s := range o.running {
		name := s.Program()
		if _, there := o.tools.Programs[name]; there {
			continue
		}
		if s.Carrier == subject.Sockets {
			paths, err := upstream.Cilium(ctx, upstream.Options{Progress: note})
			if err != nil {
				return err
			}
			versions.Cilium = upstream.CiliumVersion
			o.tools.Programs[name], o.tools.Sockets = pass.Program{Path: paths.Control, Version: versions.Cilium}, paths.Sockets
			continue
		}
		build := o.KubeProxy
		build.Progress = note
		path, version, err := s.Build(ctx, build)
		if err != nil {
			return fmt.Errorf("subject %s: %w", s.Name, err)
		}
		if path == "" {
			continue
		}
		o.tools.Programs[name] = pass.Program{Path: path, Version: version}
		if subject.IsBaseline(s.Name) {
			versions.KubeProxy = version // the names of other subjects contain their versions
		}
	}
	if o.tools.Shim, err = shim.Command(ctx); err != nil {
		return err
	}
	return o.noteDigests(run)
}

// noteDigests takes the digests of all programs that the run starts, for run.json and for the check at each start.
func (o *ExecuteOptions) noteDigests(run *raw.Run) error {
	programs := map[string]string{"shim": o.tools.Shim}
	for name, program := range o.tools.Programs {
		programs[name] = program.Path
	}
	if o.tools.Sockets != "" {
		programs["cilium sockets"] = o.tools.Sockets
	}
	for _, s := range o.running {
		if len(s.Command) > 0 {
			programs[s.Program()] = s.Command[0]
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
	run.Programs[name] = digest
	return nil
}

// ownConfig is the KubeProxyConfiguration of single subjects.
type ownConfig struct {
	digest string
	config *v1alpha1.KubeProxyConfiguration
}

// readOwn reads and checks the files that only this subject has. Names of checkouts, configurations and tools are those of
// records, so each has one path.
func (o *ExecuteOptions) readOwn(s subject.Spec) error {
	for _, path := range []struct{ name, has, of string }{
		{strings.TrimPrefix(s.Version, "src:"), s.Source, "@src:"}, {s.Config, s.ConfigFile, "+config:"}, {s.Tools, s.ToolsRoot, "+tools:"},
	} {
		if path.name != "" && path.has == "" && (path.of != "@src:" || path.name != s.Version) {
			return fmt.Errorf("subject %s: want the path of %[2]s%[3]s, too: %[2]s%[3]s=PATH", s.Name, path.of, path.name)
		}
	}
	for _, other := range o.parsed {
		if other.Program() == s.Program() && other.Source != s.Source || other.Config == s.Config && other.ConfigFile != s.ConfigFile || other.Tools == s.Tools && other.ToolsRoot != s.ToolsRoot {
			return fmt.Errorf("subjects %s and %s have one name for two paths", other.Name, s.Name)
		}
	}
	if s.Config == "" {
		return nil
	}
	text, err := outfile.Read(s.ConfigFile)
	if err != nil {
		return &InputError{fmt.Errorf("subject %s: %w", s.Name, err)}
	}
	version := s.Version
	if version == "" && o.KubeProxy.Path == "" && o.KubeProxy.Source == "" {
		version = cmp.Or(o.KubeProxy.Version, upstream.Pinned)
	}
	cfg, notes, err := config.Parse(s.ConfigFile, text, config.LoadOptions{Minor: upstream.Minor(version)})
	if err == nil {
		var more []string
		more, err = subject.CheckConfig(cfg, subject.ProxyConfig(cfg, o.Scenario, o.Objects == nil), []string{s.Name}, version)
		notes = append(notes, more...)
	}
	if err != nil {
		return &InputError{fmt.Errorf("subject %s: %s: %w", s.Name, s.ConfigFile, err)}
	}
	for _, note := range notes {
		if o.Progress != nil {
			o.Progress(Progress{Stage: "prepare", Note: s.ConfigFile + ": " + note})
		}
	}
	if o.own == nil {
		o.own = map[string]ownConfig{}
	}
	o.own[s.Config] = ownConfig{fmt.Sprintf("sha256:%x", sha256.Sum256(text)), cfg}
	return nil
}

// noteOwn takes the digests of what single subjects have.
func (o *ExecuteOptions) noteOwn(run *raw.Run) error {
	run.Programs = map[string]string{}
	for _, s := range o.parsed {
		if s.Config != "" {
			run.Programs["+config:"+s.Config] = o.own[s.Config].digest
		}
		if s.Tools == "" {
			continue
		}
		digest, err := shim.DigestOf(s.ToolsRoot)
		if err != nil {
			return &InputError{fmt.Errorf("subject %s: %w", s.Name, err)}
		}
		run.Programs["+tools:"+s.Tools] = digest
	}
	return nil
}

// useOwn makes a pass use the configuration and the tools that only its subject has, until release is called.
func (o *ExecuteOptions) useOwn(ctx context.Context, name string, a *pass.Assignment) (release func(), err error) {
	s, err := subject.Parse(name)
	if err != nil {
		return nil, err
	}
	if own, there := o.own[s.Config]; there {
		a.ProxyConfig = own.config
	}
	if s.Tools == "" {
		return func() {}, nil
	}
	dir, err := temporary.New("")
	if err != nil {
		return nil, err
	}
	restore, err := shim.Use(ctx, s.ToolsRoot, dir.Path)
	if err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	return func() { restore(); _ = dir.Remove() }, nil
}
