package reproduce

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"text/template"
	"unicode"

	"synclab/bench/outfile"
	"synclab/bench/raw"
)

// Case is a slow call of a tool.
type Case struct {
	Run     raw.Run
	Record  raw.Record // of the slow call
	Command string     // its command line, of words that need no quotes
	Input   []byte
	Before  []Step // calls that made the kernel's state before it
}

// Step is a call before the slow one.
type Step struct {
	Command string
	Input   []byte
}

// Find reads the slowest call of a run, or of one of its subjects.
func Find(dir, subject string) (*Case, error) {
	run, records, err := raw.ReadRun(dir)
	if err != nil {
		return nil, err
	}
	slowest := -1
	for i, r := range records {
		if r.Metric == raw.ToolInput && (subject == "" || r.Subject == subject) && (slowest < 0 || r.Value > records[slowest].Value) {
			slowest = i
		}
	}
	if slowest < 0 {
		return nil, fmt.Errorf("%s has no input of a tool: measure with --profile a subject that writes its rules with a tool", dir)
	}
	c := &Case{Run: run, Record: records[slowest], Command: records[slowest].Method}
	stem, _, _ := strings.Cut(c.Record.File, "-input-")
	for _, r := range records[:slowest] {
		if r.Metric != raw.ToolInput || !strings.HasPrefix(r.File, stem+"-input-") {
			continue
		}
		text, err := readInput(dir, &r)
		if err != nil {
			return nil, err
		}
		c.Before = append(c.Before, Step{r.Method, text})
	}
	if c.Input, err = readInput(dir, &c.Record); err != nil {
		return nil, err
	}
	for _, text := range c.comments() {
		if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return nil, fmt.Errorf("%s: %q has control characters: no run of synclab has that", dir, text)
		}
	}
	return c, nil
}

// comments are the texts of the run that stand in the script's comments.
func (c *Case) comments() []string {
	v := c.Run.Versions
	return []string{c.Record.Subject, v.Kernel, v.IPTablesNft, v.Nft, v.KubeProxy}
}

// readInput reads the input of a kept call, and checks it and the call.
func readInput(dir string, r *raw.Record) ([]byte, error) {
	words, err := parseCall(r.Method)
	if err != nil {
		return nil, fmt.Errorf("%s: record of %s: %w", dir, r.File, err)
	}
	path := filepath.Join(dir, raw.ProfilesFolder, filepath.Base(r.File))
	text, err := outfile.Unpack(path, largestInput)
	if err != nil {
		return nil, err
	}
	if err := checkInput(words[0], text); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return accounting.ReplaceAll(text, nil), nil
}

// largestInput is the size in bytes of the largest input of a tool that is read. That of 10,000 × 10 has some 40 MiB.
const largestInput = 512 << 20

// accounting matches what needs an object that a proxier makes over netlink, and that a script could make only with another
// tool.
var accounting = regexp.MustCompile(` -m nfacct --nfacct-name "?[\w-]+"?`)

// The files of a reproducer.
const (
	ScriptFile = "reproduce.sh"
	InputFile  = "input.txt"
	SmallFile  = "small.txt"
)

var script = template.Must(template.New("script").Parse(`#!/bin/sh
# Reproduces one slow call of a tool in a network namespace of its own. It changes nothing outside of it.
#
#   {{.Command}}
#
# It was called by {{.Record.Subject}} with {{.Record.Services}} Services, and took {{printf "%.3g" .Record.Value}} s there.
# Kernel {{.Run.Versions.Kernel}}{{with .Run.Versions.IPTablesNft}}, {{.}}{{end}}{{with .Run.Versions.Nft}}, {{.}}{{end}}{{with .Run.Versions.KubeProxy}}, kube-proxy {{.}}{{end}}.
#
#   sh reproduce.sh             with the whole input, input.txt
#   sh reproduce.sh small.txt   with a smaller one, or any other file
#
# Left out, since they need an object of the kernel that no rule makes: matches of nfacct.
# Without root, a large transaction of nf_tables needs a larger net.core.wmem_max than most machines have: "Message too long".
set -eu
if [ -z "${INSIDE-}" ]; then
	cd "$(dirname "$0")"
	export INSIDE=1
	if [ "$(id -u)" = 0 ]; then exec unshare -n sh ./reproduce.sh "$@"; fi
	exec unshare -rn sh ./reproduce.sh "$@"
fi
PATH=$PATH:/usr/sbin:/sbin
XTABLES_LOCKFILE=$(mktemp)
export XTABLES_LOCKFILE
trap 'rm -f "$XTABLES_LOCKFILE"' EXIT
{{range $i, $step := .Before}}{{$step.Command}} < before-{{$i}}.txt
{{end}}begin=$(date +%s%N)
{{.Command}} < "${1-input.txt}"
end=$(date +%s%N)
echo "seconds $(((end - begin) / 1000000000)).$(printf %09d $(((end - begin) % 1000000000)))"
`))

// Write writes the reproducer into a folder, which must be empty or not exist.
func (c *Case) Write(dir string) error {
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty: choose another folder", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i, step := range c.Before {
		if err := outfile.Write(filepath.Join(dir, fmt.Sprintf("before-%d.txt", i)), step.Input, 0o644); err != nil {
			return err
		}
	}
	var text bytes.Buffer
	if err := script.Execute(&text, c); err != nil {
		return err
	}
	if err := outfile.Write(filepath.Join(dir, ScriptFile), text.Bytes(), 0o755); err != nil {
		return err
	}
	return outfile.Write(filepath.Join(dir, InputFile), c.Input, 0o644)
}

// Time is what the script took.
type Time struct {
	Seconds float64 // of the slow call
	CPU     float64 // seconds of the script, with the calls before the slow one
}

// Measure runs the script in dir with one of its files.
func Measure(ctx context.Context, dir, file string) (Time, error) {
	cmd := exec.CommandContext(ctx, "/bin/sh", ScriptFile, file)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := lines[len(lines)-1]
	if err != nil {
		return Time{}, fmt.Errorf("%s: %w: %s", ScriptFile, err, last)
	}
	number, found := strings.CutPrefix(last, "seconds ")
	seconds, err := strconv.ParseFloat(number, 64)
	if !found || err != nil {
		return Time{}, fmt.Errorf("%s: its last line is %q, want seconds", ScriptFile, last)
	}
	return Time{seconds, (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()}, nil
}
