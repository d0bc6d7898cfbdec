package main

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"synclab/bench/lab/machine"
	"synclab/bench/lab/upstream"
	"synclab/bench/raw"
	"synclab/cmd/synclab/terminal"
	"synclab/reports/comparison"
)

func newKubeProxy(s streams) *cobra.Command {
	o := upstream.Options{Progress: func(text string) { fmt.Fprintln(s.err, text) }}
	cmd := &cobra.Command{
		Use:   "kube-proxy",
		Short: "Build unmodified kube-proxy if necessary, and print its path",
		Long: `Kube-proxy builds the command of that name from its Go module, unmodified, and
prints its path and version. The result is kept in the user's cache folder. The build
needs Go and the Go module proxy. Later runs and tests that compare with kube-proxy
find it there and need neither.`,
		Example: `  synclab kube-proxy
  synclab kube-proxy --kube-proxy-version v1.34.2`,
		Args: argCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, version, err := upstream.KubeProxy(cmd.Context(), o)
			if err == nil {
				fmt.Fprintln(s.out, path, version)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&o.Version, "kube-proxy-version", "", "`version` of Kubernetes (default: "+upstream.Pinned+")")
	terminal.Complete(cmd, "kube-proxy-version")
	return cmd
}

func newCilium(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "cilium",
		Short: "Build Cilium's load balancer if necessary, and print the paths of its parts",
		Long: `Cilium builds the parts of subject cilium/lb from Cilium's Go module, unmodified, and
prints their paths and versions: the control plane, and the programs for sockets, which
need clang. The result is kept in the user's cache folder, as with synclab kube-proxy.`,
		Example: `  synclab cilium
  synclab compare cold-start --subjects cilium/lb,kube-proxy/nftables`,
		Args: argCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			paths, err := upstream.Cilium(cmd.Context(), upstream.Options{Progress: func(text string) { fmt.Fprintln(s.err, text) }})
			if err == nil {
				fmt.Fprintln(s.out, paths.Control, upstream.CiliumVersion)
				fmt.Fprintln(s.out, paths.Sockets, upstream.CiliumVersion)
			}
			return err
		},
	}
}

func newKernel(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kernel",
		Short: "Build Linux kernels that run as ordinary processes, to measure on",
		Long: `Kernel builds Linux kernels for User-mode Linux: a kernel that is an ordinary process,
without virtualization and without root. With --kernel, other commands run each
repetition on such a kernel.

The source is Debian's package linux-source-VERSION, or --source. A build takes some
minutes. It needs gcc, make, flex, bison and bc, and 2 GB in the user's cache folder.`,
		Example: `  synclab kernel list
  synclab kernel build 6.12
  synclab compare cold-start --kernel host,6.12`,
		Args: argCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newKernelList(s), newKernelBuild(s), newKernelPath(s), newKernelLoops(s), newLoopsWorker(s))
	return cmd
}

func newKernelList(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the kernels that are built, and the versions that can be",
		Long: `List prints the kernels that are built, with their paths, and the versions whose
source this machine's package lists have.`,
		Example: "  synclab kernel list",
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
				rows = append(rows, []string{version, "synclab kernel build " + version, ""})
			}
			return terminal.Columns(s.out, rows...)
		},
	}
}

func newKernelBuild(s streams) *cobra.Command {
	o := upstream.LinuxOptions{Progress: func(text string) { fmt.Fprintln(s.err, text) }}
	cmd := &cobra.Command{
		Use:   "build VERSION | --source DIR",
		Short: "Build a kernel if necessary, and print its path",
		Long: `Build builds a kernel and prints its path and release. A kernel that is built already
is not built again, but with --source.`,
		Example: `  synclab kernel build 6.12
  synclab kernel build --source ~/linux-6.18.tar.xz`,
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
			return printKernel(cmd, s, o)
		},
	}
	cmd.Flags().StringVar(&o.Source, "source", "", "`folder` or tarball with the source of Linux")
	if err := cmd.MarkFlagFilename("source"); err != nil {
		panic(err)
	}
	return cmd
}

func newKernelPath(s streams) *cobra.Command {
	return &cobra.Command{
		Use:     "path VERSION",
		Short:   "Print the path of a kernel that is built",
		Long:    "Path prints the path and release of a kernel that is built. It builds nothing.",
		Example: "  synclab kernel path 6.12",
		Args:    argCount(1, 1, "a version"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return printKernel(cmd, s, upstream.LinuxOptions{Version: args[0], CachedOnly: true})
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
		Example: "  synclab kernel loops 6.12\n  synclab kernel loops 6.1 6.12 --reps 10",
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
				path, _, err := upstream.Linux(cmd.Context(), upstream.LinuxOptions{Version: version, Progress: func(text string) { fmt.Fprintln(s.err, text) }})
				if err != nil {
					return err
				}
				subjects = append(subjects, machine.LoopKernel{Name: version, Path: path})
			}
			times, err := machine.TimeLoops(cmd.Context(), subjects, reps, s.err, "kernel", loopsWorker)
			if err != nil {
				return err
			}
			return comparison.WriteLoops(s.out, subjects, times)
		},
	}
	cmd.Flags().IntVar(&reps, "reps", reps, "`number` of rounds")
	return cmd
}

const loopsWorker = "loops-worker"

// newLoopsWorker is the command that kernel loops runs in a namespace.
func newLoopsWorker(s streams) *cobra.Command {
	return &cobra.Command{
		Use: loopsWorker, Short: "Time loops in a namespace", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			loops, err := machine.MeasureLoops(cmd.Context())
			if err != nil {
				return err
			}
			return json.NewEncoder(s.out).Encode(loops)
		},
	}
}

func printKernel(cmd *cobra.Command, s streams, o upstream.LinuxOptions) error {
	path, release, err := upstream.Linux(cmd.Context(), o)
	if err == nil {
		fmt.Fprintln(s.out, path, release)
	}
	return err
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
