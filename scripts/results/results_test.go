package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const summary = `## engine: sizes

Words.

### All sizes

| subject | services | full sync |
| --- | --- | --- |
| a | 100 | 1 ms |
| b | 5,000 | 2 s |

Medians.

### Next

| x | y |
`

func TestCut(t *testing.T) {
	tests := []struct {
		name   string
		output output
		text   string
		want   string
	}{
		{"all", output{}, "x\ny\n", "x\ny\n"},
		{"section", output{Section: "All sizes"}, summary,
			"\n| subject | services | full sync |\n| --- | --- | --- |\n| a | 100 | 1 ms |\n| b | 5,000 | 2 s |\n\nMedians.\n"},
		{"lines", output{Lines: "^subject "}, "noise\nsubject  n\na        1\n\nmore\n", "```text\nsubject  n\na        1\n```"},
		{"lines of Markdown", output{Lines: "^### All", Until: "\\z"}, summary, summary[strings.Index(summary, "### All"):]},
	}
	for _, test := range tests {
		got, err := test.output.cut(test.text)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
		} else if got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
	for _, o := range []output{{Section: "Gone"}, {Lines: "^gone"}} {
		if got, err := o.cut(summary); err == nil {
			t.Errorf("%+v: got %q, want an error", o, got)
		}
	}
}

// One block of each run says in a document how it was measured.
func TestSays(t *testing.T) {
	p := part{Outputs: []output{{File: "a", Block: "1", Run: "x"}, {File: "a", Block: "2", Run: "x"}, {File: "a", Block: "3", Run: "y"}, {File: "b", Block: "1", Run: "x"}}}
	for i, want := range []bool{false, true, true, true} {
		if got := p.says(p.Outputs[i]); got != want {
			t.Errorf("%+v: %t", p.Outputs[i], got)
		}
	}
}

func TestReplaceBlock(t *testing.T) {
	document := "a\n<!-- results:x -->\nold\n<!-- /results:x -->\nb\n"
	got, err := replaceBlock(document, "x", "new")
	if want := strings.Replace(document, "old", "new", 1); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	for _, document := range []string{"", "<!-- results:x -->\n"} {
		if _, err := replaceBlock(document, "x", "new"); err == nil {
			t.Errorf("%q: want an error", document)
		}
	}
}

func TestExpand(t *testing.T) {
	const command = "run --services {N:100} --reps {REPS:6} --out {part}/run"
	if got, want := (values{}).expand(command, "d"), "run --services 100 --reps 6 --out d/run"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := (values{"7", "1"}).expand(command, "d"), "run --services 7 --reps 1 --out d/run"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestMeasureOnce runs a stand-in for synclab: a part is measured again only if the code has changed.
func TestMeasureOnce(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n[ \"$1\" = silent ] || echo \"$@\"\n[ \"$1\" != aside ] || exec sleep 60\n[ \"$1\" != fail ]\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	m := measurement{part: part{Name: "x", Commands: []string{"one {N:5}", "two"}}, dir: filepath.Join(dir, "x"), program: program}
	if err := m.measure(t.Context(), "commit"); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(m.dir, outputFile)); err != nil || string(text) != "one 5\ntwo\n" {
		t.Errorf("output: %q, %v", text, err)
	}
	if got := m.measured(); got != "commit" {
		t.Errorf("measured with %q, want commit", got)
	}
	m.part.Commands = []string{"one"}
	if got := m.measured(); got != "" {
		t.Errorf("with other commands: measured with %q, want nothing", got)
	}
	m.part.Commands = []string{"aside &", "one"}
	if err := m.measure(t.Context(), "later"); err != nil {
		t.Errorf("beside another: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(m.dir, outputFile)); err != nil || string(text) != "one\n" {
		t.Errorf("output beside another: %q, %v", text, err)
	}
	m.part.Commands = []string{"silent &"}
	if err := m.measure(t.Context(), "later"); err == nil {
		t.Error("a command that ends before it is ready: want an error")
	}
	script := filepath.Join(dir, "script.sh")
	if err := os.WriteFile(script, []byte("echo \"script $1\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	m.part.Commands = []string{script + " {N:7}"}
	if err := m.measure(t.Context(), "later"); err != nil {
		t.Errorf("a script: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(m.dir, outputFile)); err != nil || string(text) != "script 7\n" {
		t.Errorf("output of a script: %q, %v", text, err)
	}
	m.part.Commands = []string{"-fail", "one"}
	if err := m.measure(t.Context(), "later"); err != nil {
		t.Errorf("a command whose verdict is bad: %v", err)
	}
	m.part.Commands = []string{"one", "fail"}
	if err := m.measure(t.Context(), "later"); err == nil {
		t.Error("a command that fails: want an error")
	}
	if got := m.measured(); got != "" {
		t.Errorf("after a failure: measured with %q, want nothing", got)
	}
}

// top is the repository's folder.
const top = "../.."

// documents returns all documents with published results.
func documents(t *testing.T) []string {
	t.Helper()
	files := []string{"README.md", "CONTRIBUTING.md", "deploy/README.md"}
	err := filepath.WalkDir(filepath.Join(top, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			name, _ := filepath.Rel(top, path)
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var block = regexp.MustCompile(`(?s)<!-- results:(\S+) -->\n(.*?)<!-- /results:(\S+) -->`)

// TestPublished checks each block of the documents: a part writes it, and its commit exists. Each output has its block
// or picture, unless its document was never measured and does not exist.
func TestPublished(t *testing.T) {
	parts, err := readParts(filepath.Join(top, "docs/results.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	outputs, silent := map[string]string{}, map[string]bool{} // file and block → part, and whether another block says how it was measured
	for _, p := range parts {
		for _, o := range p.Outputs {
			if o.picture() {
				if _, err := os.Stat(filepath.Join(top, o.File)); err != nil {
					t.Errorf("part %s: %v", p.Name, err)
				}
				continue
			}
			outputs[o.File+" "+o.Block], silent[o.File+" "+o.Block] = p.Name, !p.says(o)
		}
	}
	commits := map[string]string{} // with a block that was measured there
	measured := regexp.MustCompile(`(?m)^Measured \d{4}-\d\d-\d\d at commit ([0-9a-f]{7,40}), part (\S+) of `)
	for _, name := range documents(t) {
		text, err := os.ReadFile(filepath.Join(top, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range block.FindAllStringSubmatch(string(text), -1) {
			place := name + " " + match[1]
			if place == indexFile+" "+indexBlock {
				continue // TestIndex
			}
			part, ok := outputs[place]
			delete(outputs, place)
			from := measured.FindStringSubmatch(match[2])
			switch {
			case !ok || match[3] != match[1]:
				t.Errorf("%s: block %s: no part of docs/results.yaml writes it", name, match[1])
			case from == nil && silent[place]:
			case from == nil:
				t.Errorf("%s: block %s has no date and commit of its measurement", name, match[1])
			case from[2] != part:
				t.Errorf("%s: block %s is of part %s, want %s", name, match[1], from[2], part)
			default:
				commits[from[1]] = place
			}
		}
	}
	t.Run("commits", func(t *testing.T) { areInHistory(t, commits) })
	for place := range outputs {
		file, _, _ := strings.Cut(place, " ")
		if _, err := os.Stat(filepath.Join(top, file)); err != nil {
			continue
		}
		t.Errorf("docs/results.yaml: %s: the document has no such block", place)
	}
}

// areInHistory looks for commits, with the block that each is of. A copy without history has none.
func areInHistory(t *testing.T, commits map[string]string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err, "; install the package git")
	}
	if out, err := exec.Command("git", "-C", top, "rev-parse", "--is-shallow-repository").Output(); err != nil || strings.TrimSpace(string(out)) != "false" {
		t.Skip("needs a clone with its history, not a copy or a shallow clone")
	}
	for commit, place := range commits {
		if out, err := exec.Command("git", "-C", top, "cat-file", "-e", commit+"^{commit}").CombinedOutput(); err != nil {
			t.Errorf("%s: commit %s: %v %s", place, commit, err, out)
		}
	}
}

// TestIndex: the list of published results is that of the documents.
func TestIndex(t *testing.T) {
	parts, err := readParts(filepath.Join(top, "docs/results.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := index(parts, top)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(top, indexFile)); err != nil || !strings.Contains(string(got), "-->\n"+want+"\n<!--") {
		t.Errorf("%s is not current: go run ./scripts/results -index writes it (%v)", indexFile, err)
	}
}

// settings are numbers with a unit that are not measured: defaults, SLOs and options of commands.
var settings = []string{
	"--npl-p99 2s", "--budget 90s", "minSyncPeriod=5s", "> 600 s", "some 10 ms", "some 6 minutes a repetition", "`syncPeriod` 10 s", "within 45 s",
	"5 s of a partial sync", "waits for 5 s",
	"4 GiB", "`minSyncPeriod` 1 ms", "6 s, twice", "sync periods of 1 s", "within 6 s", "retried after 1 s",
}

// TestNoNumbersOutside looks for measured numbers that no part writes.
func TestNoNumbersOutside(t *testing.T) {
	number := regexp.MustCompile(`\b[0-9][0-9.,]*[  ]?(ns|µs|ms|s|seconds|minutes|KiB|MiB|GiB|GB|MB|×|% slower|% faster|times faster)\b|[0-9.,]+×`)
	for _, name := range documents(t) {
		text, err := os.ReadFile(filepath.Join(top, name))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(block.ReplaceAllStringFunc(string(text), blank), "\n") {
			for _, found := range number.FindAllString(line, -1) {
				if allowed := slices.ContainsFunc(settings, func(s string) bool { return strings.Contains(line, s) && strings.Contains(s, found) }); !allowed {
					t.Errorf("%s:%d: %q: put a measured number into a block that 'make results' writes: %s", name, i+1, found, line)
				}
			}
		}
	}
}

// blank keeps the number of lines of a block, for correct line numbers.
func blank(text string) string { return strings.Repeat("\n", strings.Count(text, "\n")) }
