package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"synclab/bench"
	"synclab/bench/lab/machine"
	"synclab/bench/lab/netns"
	"synclab/bench/verify/conform"
	"synclab/cmd/synclab/terminal"
)

// Exit statuses.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotCompared = 3   // of conform: synclab could not compare
	exitInterrupted = 130 // what a shell reports after Ctrl-C
)

func main() {
	if netns.IsGuest() {
		netns.RunGuest()
	}
	_ = os.Setenv("PATH", absolute(os.Getenv("PATH")))
	ctx, windUp := context.WithCancel(context.Background())
	go terminal.HeedSignals(windUp)
	s := streams{os.Stdin, &terminal.Printable{W: os.Stdout}, &terminal.Printable{W: os.Stderr}}
	args, plugin := asPlugin(os.Args[0], os.Args[1:])
	err := runAs(ctx, s, plugin, args)
	os.Exit(exitStatus(ctx, s.err, err))
}

// absolute removes the relative entries of a PATH, so that the working directory does not decide which tools run.
func absolute(path string) string {
	kept := slices.DeleteFunc(filepath.SplitList(path), func(dir string) bool { return !filepath.IsAbs(dir) })
	return strings.Join(kept, string(filepath.ListSeparator))
}

// streams are a command's input and output. Results go to out; progress and remarks go to err.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// progress prints a line of progress.
func (s streams) progress(line string) { fmt.Fprintln(s.err, line) }

// run is the whole program without the process. args are without the program's name.
func run(ctx context.Context, s streams, args []string) error { return runAs(ctx, s, false, args) }

// runAs is run, or the same for kubectl's plugin.
func runAs(ctx context.Context, s streams, plugin bool, args []string) error {
	args, all := helpArgs(args)
	root := newRoot(s)
	if plugin {
		makePlugin(root, s)
	}
	groupCommands(root, all)
	root.SetArgs(args)
	var ending []func()
	defer func() {
		for _, end := range slices.Backward(ending) {
			end()
		}
	}()
	cmd, err := root.ExecuteContextC(context.WithValue(ctx, endingKey{}, &ending))
	return plainError(cmd, err)
}

// endingKey is the key of the functions that run calls at its end.
type endingKey struct{}

// atEnd makes run call a function at its end, the last one first.
func atEnd(ctx context.Context, end func()) {
	ending := ctx.Value(endingKey{}).(*[]func())
	*ending = append(*ending, end)
}

// usageError is a mistake in the user's input: flags, arguments, or an input file. Nothing was started.
type usageError struct {
	err error
	// command is the command whose --help would help; empty when the mistake is in a file.
	command string
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// badInput marks the error of reading an input file.
func badInput(err error) error {
	if err == nil {
		return nil
	}
	return &usageError{err: err}
}

// badUsage returns a mistake on the command line of cmd.
func badUsage(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...), command: cmd.CommandPath()}
}

// notCompared is a failure of a comparison itself. It says nothing about what was to be compared.
type notCompared struct{ error }

func (e *notCompared) Unwrap() error { return e.error }

// ofComparison marks the error of a comparison, unless it is one of the input.
func ofComparison(err error) error {
	var usage *usageError
	if err == nil || errors.As(err, &usage) {
		return err
	}
	return &notCompared{fmt.Errorf("could not compare: %w", err)}
}

// exitStatus prints err, unless it was printed already, and returns the exit status.
func exitStatus(ctx context.Context, stderr io.Writer, err error) int {
	var usage *usageError
	var worker *netns.WorkerError
	var own *notCompared
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &worker):
		if !printedByWorker(err) {
			fmt.Fprintf(stderr, "synclab: %s\n", strings.TrimSpace(err.Error()))
		}
		if status := netns.ExitCode(worker); status != exitFailed || !errors.As(err, &own) {
			return status
		}
		return exitNotCompared
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "synclab: interrupted")
		return exitInterrupted
	}
	fmt.Fprintf(stderr, "synclab: %s\n", strings.TrimSpace(err.Error()))
	switch {
	case errors.As(err, &own):
		return exitNotCompared
	case !errors.As(err, &usage):
		return exitFailed
	}
	if usage.command != "" {
		fmt.Fprintf(stderr, "Run '%s --help' for its usage.\n", usage.command)
	}
	return exitUsage
}

// printedByWorker reports whether err consists only of workers that exited by themselves: each has printed its error.
func printedByWorker(err error) bool {
	switch e := err.(type) {
	case *netns.WorkerError:
		return e.Exited()
	case interface{ Unwrap() error }:
		return printedByWorker(e.Unwrap())
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(err error) bool { return !printedByWorker(err) })
	}
	return false
}

func newRoot(s streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "synclab",
		Short: "Benchmark and fault-test Kubernetes Service proxies",
		Long: `Synclab measures a real Service proxier on a real kernel, driven by a simulated
cluster: no cluster, no etcd, no pods. It measures how long a sync takes, where the
time goes, what rules cost a packet, and how large a cluster may grow.

It works only inside its own network namespaces, as root or as an ordinary user, and
never changes the firewall of the machine.`,
		Example: `  synclab doctor                            # can this machine run it?
  synclab run --services 10000              # one proxier under churn, then a report
  synclab compare --services 1000           # beside unmodified kube-proxy, in every mode
  synclab compare -f dump.yaml              # with your own Services
  synclab plan --services 20000 --churn 50  # how far a cluster can grow`,
		SilenceUsage:  true, // exitStatus prints errors, and refers to --help
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE:          helpOfCommands,
	}
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(newRun(s), newMigrate(s), newCompare(s), newConform(s), newBuild(s), newReport(s), newIndex(s), newExplain(s), newDiff(s), newHistory(s), newRules(s), newServe(s), newScenarios(s), newDoctor(s), newVersion(s), newProxy(s), newCapture(s), newSoak(s), newPR(s), newPublished(s), newInspect(s))
	root.AddCommand(newPlan(s))
	root.AddCommand(newWorkers(s)...)
	addCompletion(root)
	addHelp(root)
	root.Flags().Bool("version", false, "print what this binary was built from")
	root.Version = versionText()
	root.SetVersionTemplate("{{.Version}}")
	terminal.CompleteRest(root)
	return root
}

// addCompletion adds cobra's command completion. For an unknown shell, cobra would only print its help.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	at := slices.IndexFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == "completion" })
	completion := root.Commands()[at]
	var shells []string
	for _, shell := range completion.Commands() {
		shells = append(shells, shell.Name())
		shell.Example = "  synclab completion " + shell.Name() + " > synclab-completion"
	}
	completion.Example = "  synclab completion bash > /etc/bash_completion.d/synclab"
	completion.Args = cobra.ArbitraryArgs
	completion.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return badUsage(cmd, "no completion for %q: want %s", args[0], orWords(shells))
	}
}

// flagError rewrites the error of an invalid flag value, since the errors of package strconv are for programmers.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		return badUsage(cmd, "%w%s", err, didYouMean(nearFlags(cmd, unknown.GetSpecifiedName())))
	}
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		flag := invalid.GetFlag()
		want := map[string]string{
			"int": "a whole number", "uint64": "a whole number, 0 or more", "float64": "a number", "bool": "true or false", "duration": "a time with its unit, such as 90s or 5m",
		}[flag.Value.Type()]
		if errors.Is(err, strconv.ErrRange) {
			want += " that is not as large"
		}
		if want != "" {
			return badUsage(cmd, "invalid argument %q for \"--%s\" flag: want %s", invalid.GetValue(), flag.Name, want)
		}
	}
	return badUsage(cmd, "%w", err)
}

// helpOfCommands runs a command that only has subcommands.
func helpOfCommands(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}
	return cmd.Help()
}

// unknownCommand returns the error for a word that is no subcommand of cmd.
func unknownCommand(cmd *cobra.Command, word string) error {
	cmd.SuggestionsMinimumDistance = 2 // letters that may differ
	near := cmd.SuggestionsFor(word)
	for _, group := range cmd.Commands() {
		if slices.ContainsFunc(group.Commands(), func(c *cobra.Command) bool { return c.Name() == word && !c.Hidden }) {
			near = append(near, group.Name()+" "+word)
		}
	}
	return badUsage(cmd, "unknown command %q%s", word, didYouMean(near))
}

// didYouMean is the end of an error about a word that is like others.
func didYouMean(near []string) string {
	if len(near) == 0 {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", strings.Join(near, " or "))
}

// nearFlags returns the flags of a command whose names are like a word, by cobra's measure for names of commands.
func nearFlags(cmd *cobra.Command, word string) []string {
	if len(word) < 2 { // a shorthand
		return nil
	}
	names := &cobra.Command{SuggestionsMinimumDistance: 2}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	near := names.SuggestionsFor(word)
	for i := range near {
		near[i] = "--" + near[i]
	}
	return near
}

// argCount is cobra's check of the number of arguments, as a usage error. what names the arguments.
func argCount(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return badUsage(cmd, "missing argument: %s", what)
		case len(args) > most && most == 0:
			return badUsage(cmd, "takes no argument, got %q", args[0])
		case len(args) > most:
			return badUsage(cmd, "takes at most %d argument (%s), got also %q", most, what, args[most])
		}
		return nil
	}
}

// The hidden commands that other commands start in a namespace.
const (
	worker      = "worker"
	rulesWorker = "rules-worker"
	loopsWorker = "loops-worker"
)

// newWorkers makes the hidden commands.
func newWorkers(s streams) (workers []*cobra.Command) {
	for _, w := range []struct {
		name, short string
		work        func(context.Context) error
	}{
		{worker, "Run one repetition, read from stdin, in the namespace of a run", func(ctx context.Context) error { return bench.Work(ctx, s.in, s.out) }},
		{rulesWorker, "Compare rules, as requested on stdin, in the namespace of a comparison", func(ctx context.Context) error { return conform.Work(ctx, s.in, s.out) }},
		{loopsWorker, "Time loops in a namespace", func(ctx context.Context) error { return machine.WriteLoops(ctx, s.out) }},
	} {
		workers = append(workers, &cobra.Command{Use: w.name, Short: w.short, Hidden: true, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return w.work(cmd.Context()) }})
	}
	return workers
}
