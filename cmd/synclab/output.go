package main

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
	"sigs.k8s.io/yaml"
)

// formats are the output formats; the first is the default.
var formats = []string{"table", "json", "yaml"}

// outputFormat is the flag -o of commands whose output is data.
type outputFormat string

func (f *outputFormat) String() string { return string(*f) }
func (f *outputFormat) Type() string   { return "format" }

// Set implements pflag.Value.
func (f *outputFormat) Set(s string) error {
	if !slices.Contains(formats, s) {
		return fmt.Errorf("want %s", strings.Join(formats, ", "))
	}
	*f = outputFormat(s)
	return nil
}

// register adds the flag to cmd.
func (f *outputFormat) register(cmd *cobra.Command) {
	*f = outputFormat(formats[0])
	cmd.Flags().VarP(f, "output", "o", "how to print the result: "+strings.Join(formats, ", "))
	complete(cmd, "output", formats...)
}

// write prints value: as JSON or YAML by its JSON tags, or through table.
func (f outputFormat) write(w io.Writer, value any, table func(io.Writer) error) error {
	if f == "table" {
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

// columns prints rows of cells, aligned.
func columns(w io.Writer, rows ...[]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	return t.Flush()
}

// turnTaking serializes the writes of several goroutines. It is no io.ReaderFrom, even if w is.
type turnTaking struct {
	mu sync.Mutex
	w  io.Writer
}

// Write implements io.Writer.
func (t *turnTaking) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.w.Write(b)
}

// complete sets the fixed completions of a flag. It panics on an unknown flag, which is a bug in this package.
func complete(cmd *cobra.Command, flag string, words ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err)
	}
}
