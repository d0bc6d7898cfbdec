package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// Formats are the output formats; the first is the default.
var Formats = []string{"table", "json", "yaml"}

// GitHub is a further format of some commands: Markdown with collapsed details, for pull requests.
const GitHub = "github"

// Format is the flag -o of commands whose output is data.
type Format string

// formatFlag is the value of a flag: one of some formats.
type formatFlag struct {
	to    *Format
	names []string
}

func (f formatFlag) String() string { return string(*f.to) }
func (f formatFlag) Type() string   { return "format" }

// Set implements pflag.Value.
func (f formatFlag) Set(s string) error {
	if !slices.Contains(f.names, s) {
		return fmt.Errorf("want %s", strings.Join(f.names, ", "))
	}
	*f.to = Format(s)
	return nil
}

// Register adds the flag to cmd, whose other name is --format. more are formats that only this command has.
func (f *Format) Register(cmd *cobra.Command, more ...string) {
	*f = Format(Formats[0])
	names := slices.Concat(Formats, more)
	cmd.Flags().VarP(formatFlag{f, names}, "output", "o", "how to print the result: "+strings.Join(names, ", "))
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "format" {
			name = "output"
		}
		return pflag.NormalizedName(name)
	})
	Complete(cmd, "output", names...)
}

// Text is what Write prints as text: the table, or Markdown in the format GitHub.
func (f Format) Text(table, markdown func(io.Writer) error) func(io.Writer) error {
	if f == GitHub {
		return markdown
	}
	return table
}

// Write prints value: as JSON or YAML by its JSON tags, or through table, which Text may choose.
func (f Format) Write(w io.Writer, value any, table func(io.Writer) error) error {
	if f == "table" || f == GitHub {
		return table(w)
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	out := text.Bytes()
	if f == "yaml" {
		var err error
		if out, err = yaml.JSONToYAML(out); err != nil {
			return err
		}
	}
	_, err := w.Write(out)
	return err
}

// Columns prints rows of cells, aligned.
func Columns(w io.Writer, rows ...[]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	return t.Flush()
}

// Turns serializes the writes of several goroutines. It is no io.ReaderFrom, even if w is.
type Turns struct {
	Mu sync.Mutex
	W  io.Writer
}

// Write implements io.Writer.
func (t *Turns) Write(b []byte) (int, error) {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	return t.W.Write(b)
}

// Complete sets the fixed completions of a flag. It panics on an unknown flag, which is a bug in this package.
func Complete(cmd *cobra.Command, flag string, words ...string) {
	CompleteBy(cmd, flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// CompleteBy sets what completes a flag, as Complete does.
func CompleteBy(cmd *cobra.Command, flag string, completion cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, completion); err != nil {
		panic(err)
	}
}

// extensions are those of files that flags name. Other files may have any.
var extensions = map[string][]string{
	"filename": {"yaml", "yml", "json", "gz", "tgz"}, "proxy-config": {"yaml", "yml", "json"}, "config": {"yaml", "yml", "json"}, "then": {"yaml", "yml", "json"},
	"earlier": {"yaml", "yml", "json"}, "output": {"yaml", "yml"}, "minimize": {"yaml"}, "churn-from": {"jsonl"}, "history": {"jsonl"}, "page": {"html"},
}

// CompleteRest sets what completes all other flags below a command: files and folders where the help's name of the value says
// so, else nothing.
func CompleteRest(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		CompleteRest(sub)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		var err error
		_, set := cmd.GetFlagCompletionFunc(f.Name)
		switch what, _ := pflag.UnquoteUsage(f); {
		case set || what == "DIR|FILE" || what == "binary" || what == "template":
		case what == "file":
			err = cmd.MarkFlagFilename(f.Name, extensions[f.Name]...)
		case what == "folder":
			err = cmd.MarkFlagDirname(f.Name)
		case f.NoOptDefVal == "": // it takes a value
			Complete(cmd, f.Name)
		}
		if err != nil {
			panic(err)
		}
	})
}
