package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"synclab/bench/lab/machine"
	"synclab/bench/lab/upstream"
	"synclab/bench/raw"
	"synclab/cmd/synclab/terminal"
	"synclab/reports/comparison"
)

func newBuild(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build what to compare with: kube-proxy, Cilium's load balancer, Linux kernels",
		Long: `Build builds unmodified programs of others, and prints their paths and versions. The
results are kept in the user's cache folder, where runs and tests find them. What is
built already is not built again.`,
		Example: `  synclab build kube-proxy
  synclab build cilium
  synclab build kernel 6.12`,
		Args: cobra.ArbitraryArgs,
		RunE: helpOfCommands,
	}
	cmd.AddCommand(newKubeProxy(s), newCilium(s), newKernel(s))
	return cmd
}

// registerCached adds the flag that forbids building.
func registerCached(cmd *cobra.Command, cached *bool) {
	cmd.Flags().BoolVar(cached, "cached", false, "build nothing: fail if it is not built already")
}

func newKubeProxy(s streams) *cobra.Command {
	o := upstream.Options{Progress: s.progress}
	cmd := &cobra.Command{
		Use:   "kube-proxy",
		Short: "Build unmodified kube-proxy if necessary, and print its path",
		Long: `Kube-proxy builds the command of that name from its Go module, unmodified, and
prints its path and version. The build needs Go and the Go module proxy. Later runs and
tests that compare with kube-proxy need neither.`,
		Example: `  synclab build kube-proxy
  synclab build kube-proxy --kube-proxy-version v1.34.2`,
		Args: argCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, version, err := upstream.KubeProxy(cmd.Context(), o)
			if err == nil {
				fmt.Fprintln(s.out, path, version)
			}
			return err
		},
	}
	registerKubeProxyVersion(cmd, &o.Version)
	registerCached(cmd, &o.CachedOnly)
	return cmd
}

func newCilium(s streams) *cobra.Command {
	o := upstream.Options{Progress: s.progress}
	cmd := &cobra.Command{
		Use:   "cilium",
		Short: "Build Cilium's load balancer if necessary, and print the paths of its parts",
		Long: `Cilium builds the parts of subject cilium/lb from Cilium's Go module, unmodified, and
prints their paths and versions: the control plane, and the programs for sockets, which
need clang.`,
		Example: `  synclab build cilium
  synclab compare cold-start --subjects cilium/lb,kube-proxy/nftables`,
		Args: argCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			paths, err := upstream.Cilium(cmd.Context(), o)
			if err == nil {
				fmt.Fprintln(s.out, paths.Control, upstream.CiliumVersion)
				fmt.Fprintln(s.out, paths.Sockets, upstream.CiliumVersion)
			}
			return err
		},
	}
	registerCached(cmd, &o.CachedOnly)
	return cmd
}

func newKernel(s streams) *cobra.Command {
	o := upstream.LinuxOptions{Progress: s.progress}
	cmd := &cobra.Command{
		Use:   "kernel VERSION | --source DIR",
		Short: "Build a Linux kernel that runs as an ordinary process, to measure on",
		Long: `Kernel builds a Linux kernel for User-mode Linux: a kernel that is an ordinary process,
without virtualization and without root. It prints its path and release. With --kernel,
other commands run each repetition on such a kernel.

The source is Debian's package linux-source-VERSION, or --source. A build takes some
minutes. It needs gcc, make, flex, bison and bc, and 2 GB in the user's cache folder. A
kernel that is built already is not built again, but with --source.`,
		Example: `  synclab build kernel 6.12
  synclab build kernel --source ~/linux-6.18.tar.xz
  synclab build kernel 6.12 --cached       # where it is, if it is built
  synclab build kernel list
  synclab compare cold-start --kernel host,6.12`,
		Args: argCount(0, 1, "a version"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 && o.Source == "":
				return badUsage(cmd, "missing argument: a version such as 6.12, or --source")
			case len(args) > 0 && o.Source != "":
				return badUsage(cmd, "a version and --source exclude each other: the source has a version")
			case len(args) > 0:
				o.Version = args[0]
			}
			path, release, err := upstream.Linux(cmd.Context(), o)
			if err == nil {
				fmt.Fprintln(s.out, path, release)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&o.Source, "source", "", "`file` or folder with the source of Linux")
	registerCached(cmd, &o.CachedOnly)
	cmd.MarkFlagsMutuallyExclusive("source", "cached")
	cmd.AddCommand(newKernelList(s), newKernelLoops(s))
	return cmd
}

func newKernelList(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the kernels that are built, and the versions that can be",
		Long: `List prints the kernels that are built, with their paths, and the versions whose
source this machine's package lists have.`,
		Example: "  synclab build kernel list",
		Args:    argCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			built, err := upstream.Kernels("")
			if err != nil {
				return err
			}
			rows := [][]string{{"kernel", "state", "path"}}
			for _, k := range built {
				rows = append(rows, []string{k.Version, "built " + k.Built.Format("2006-01-02"), k.Path})
			}
			available, err := upstream.Packages(cmd.Context())
			if err != nil {
				fmt.Fprintln(s.err, "no package lists here:", err)
			}
			for _, version := range available {
				if slices.ContainsFunc(built, func(k upstream.BuiltKernel) bool { return upstream.LinuxSeries(k.Version) == version }) {
					continue
				}
				rows = append(rows, []string{version, "synclab build kernel " + version, ""})
			}
			return terminal.Columns(s.out, rows...)
		},
	}
}

func newKernelLoops(s streams) *cobra.Command {
	reps := 6
	cmd := &cobra.Command{
		Use:   "loops VERSION...",
		Short: "Time small loops on the machine's kernel and on others: what one can trust of a guest",
		Long: `Loops times small pieces of work on the machine's own kernel and on each kernel in turn,
and prints their ratios with 95 % intervals over the rounds. Work that costs the same on
both can be compared between them. Other work cannot.`,
		Example: "  synclab build kernel loops 6.12\n  synclab build kernel loops 6.1 6.12 --reps 10",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if reps < 1 || reps > 100 {
				return badUsage(cmd, "--reps %d: want 1 to 100", reps)
			}
			if err := checkKernels(cmd, args); err != nil {
				return err
			}
			subjects := []machine.LoopKernel{{Name: raw.HostKernel}}
			for _, version := range args {
				if version == raw.HostKernel {
					continue
				}
				path, _, err := upstream.Linux(cmd.Context(), upstream.LinuxOptions{Version: version, Progress: s.progress})
				if err != nil {
					return err
				}
				subjects = append(subjects, machine.LoopKernel{Name: version, Path: path})
			}
			times, err := machine.TimeLoops(cmd.Context(), subjects, reps, s.err, loopsWorker)
			if err != nil {
				return err
			}
			return comparison.WriteLoops(s.out, subjects, times)
		},
	}
	cmd.Flags().IntVar(&reps, "reps", reps, "`number` of rounds")
	return cmd
}

// checkKernels requires kernels that can exist, each once.
func checkKernels(cmd *cobra.Command, names []string) error {
	for i, name := range names {
		if name != raw.HostKernel && !upstream.IsLinuxVersion(name) {
			return badUsage(cmd, "--kernel: %q is no kernel: want %s or a version of Linux such as 6.12", name, raw.HostKernel)
		}
		if slices.Contains(names[:i], name) {
			return badUsage(cmd, "--kernel: %s is given twice", name)
		}
	}
	return nil
}

// completeKernels offers the machine's kernel and those that are built.
func completeKernels(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	names := []string{raw.HostKernel}
	built, _ := upstream.Kernels("")
	for _, k := range built {
		names = append(names, upstream.LinuxSeries(k.Version))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
