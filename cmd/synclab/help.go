package main

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"synclab/reports/doc"
)

// commandGroups are the parts of `synclab --help`.
var commandGroups = []struct {
	title    string
	commands []string
}{
	{"Measure:", []string{"run", "compare", "conform", "pr", "published", "soak"}},
	{"Your cluster:", []string{"capture", "inspect", "plan", "migrate"}},
	{"Read:", []string{"report", "index", "explain", "diff", "history"}},
	{"Tools:", []string{"rules", "serve", "scenarios", "build", "doctor", "version", "completion", "help"}},
}

// helpAll is the flag that shows all flags. It stands for --help.
const helpAll = "help-all"

// groupCommands puts the commands into their groups, and sets how help lists flags.
func groupCommands(root *cobra.Command, all bool) {
	for _, group := range commandGroups {
		var commands []*cobra.Command
		for _, cmd := range root.Commands() {
			if slices.Contains(group.commands, cmd.Name()) {
				cmd.GroupID = group.title
				commands = append(commands, cmd)
			}
		}
		if len(commands) > 0 { // kubectl's plugin has few
			root.AddGroup(&cobra.Group{ID: group.title, Title: group.title})
		}
	}
	last := commandGroups[len(commandGroups)-1].title
	root.SetHelpCommandGroupID(last)
	root.SetCompletionCommandGroupID(last)
	given := root.PersistentFlags().Bool(helpAll, false, "help with all flags")
	*given = all // helpArgs took it from the arguments
	addTemplateFuncs()
	usage := strings.NewReplacer(".LocalFlags.FlagUsages", "localFlags .", ".InheritedFlags.FlagUsages", "inheritedFlags .").Replace(root.UsageTemplate())
	root.SetUsageTemplate(usage)
}

// addTemplateFuncs adds the functions of the usage's template, once: cobra keeps them in a global map, and tests run the
// program many times at once.
var addTemplateFuncs = sync.OnceFunc(func() {
	help := func(flags *pflag.FlagSet, cmd *cobra.Command) string {
		all, _ := cmd.Root().PersistentFlags().GetBool(helpAll) // every root has it
		return flagHelp(flags, all)
	}
	cobra.AddTemplateFunc("localFlags", func(cmd *cobra.Command) string { return help(cmd.LocalFlags(), cmd) })
	cobra.AddTemplateFunc("inheritedFlags", func(cmd *cobra.Command) string { return help(cmd.InheritedFlags(), cmd) })
})

// addHelp adds cobra's command help, which would print the help of synclab for an unknown command, and succeed.
func addHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	at := slices.IndexFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == "help" })
	help := root.Commands()[at]
	help.Long = "Help prints the description, the usage and the flags of a command, as its --help does."
	help.Example = "  synclab help compare\n  synclab help scenarios describe"
	help.Run = nil
	help.RunE = func(cmd *cobra.Command, args []string) error {
		about, rest, err := cmd.Root().Find(args)
		if err != nil || len(rest) > 0 && about.HasAvailableSubCommands() {
			return unknownCommand(about, rest[0])
		}
		about.InitDefaultHelpFlag()
		return about.Help()
	}
}

// helpArgs replaces --help-all by --help. It reports whether it was there.
func helpArgs(args []string) ([]string, bool) {
	i := slices.Index(args, "--"+helpAll)
	if end := slices.Index(args, "--"); i < 0 || end >= 0 && end < i {
		return args, false
	}
	args = slices.Clone(args)
	args[i] = "--help"
	return args, true
}

// later marks flags that only --help-all shows.
const later = "synclab/later"

// moreFlags marks flags that few need.
func moreFlags(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		if err := cmd.Flags().SetAnnotation(name, later, []string{"true"}); err != nil {
			panic(err)
		}
	}
}

// hideFlags marks flags that have no meaning for a command.
func hideFlags(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		if err := cmd.Flags().MarkHidden(name); err != nil {
			panic(err)
		}
	}
}

// helpWidth is the number of columns of flags in help.
const helpWidth = 100

// flagHelp lists flags: all of them, or those that most need.
func flagHelp(flags *pflag.FlagSet, all bool) string {
	var shown pflag.FlagSet
	more := 0
	flags.VisitAll(func(f *pflag.Flag) {
		switch {
		case f.Hidden:
		case !all && f.Annotations[later] != nil:
			more++
		default:
			shown.AddFlag(f)
		}
	})
	text := shown.FlagUsagesWrapped(helpWidth)
	if more > 0 {
		text += "\nMore flags: " + doc.Plural(more, "flag") + ", shown with --" + helpAll
	}
	return text
}

var (
	excluding = regexp.MustCompile(`^if any flags in the group \[.*\] are set none of the others can be; \[(.*)\] were all set$`)
	required  = regexp.MustCompile(`^required flag\(s\) (.*) not set$`)
)

// plainError rewrites cobra's errors of groups of flags, and makes them usage errors.
func plainError(cmd *cobra.Command, err error) error {
	var usage *usageError
	if err == nil || errors.As(err, &usage) {
		return err
	}
	if m := excluding.FindStringSubmatch(err.Error()); m != nil {
		names := strings.Fields(m[1])
		for i := range names {
			names[i] = "--" + names[i]
		}
		other := "each other"
		if len(names) > 2 {
			other = "one another"
		}
		return badUsage(cmd, "%s exclude %s", doc.JoinWords(names), other)
	}
	if m := required.FindStringSubmatch(err.Error()); m != nil {
		names := strings.Split(strings.ReplaceAll(m[1], `"`, "--"), ", ")
		for i := range names {
			names[i] = strings.TrimSuffix(names[i], "--")
		}
		return badUsage(cmd, "missing: %s", doc.JoinWords(names))
	}
	return err
}
