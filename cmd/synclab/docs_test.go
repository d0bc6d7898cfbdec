package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documents are those with commands for users.
func documents(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	return append(files, "../../README.md", "../../CONTRIBUTING.md", "../../deploy/README.md")
}

var (
	resultBlock = regexp.MustCompile(`(?s)<!-- results:.*?<!-- /results:`)
	codeLine    = regexp.MustCompile("(?m)^ {4,}(?:.*\\| *)?((?:bin/)?synclab [^#\n]*|make [^#\n]*)|`((?:bin/)?synclab [^`]*|make [^`]*)`")
	shellWord   = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)
	placeholder = regexp.MustCompile(`^\[?[A-Z]+[0-9]?(\.\.\.)?\]?$|…`)
)

// quick commands run here. The others measure, build or serve: they are long, and only their flags are checked here. The
// tests of their commands run them.
func quick(words []string) bool {
	text := strings.Join(words, " ")
	return slices.Contains([]string{"rules", "scenarios", "doctor", "version"}, words[0]) || text == "build kernel list" || slices.Contains(words, "--dry-run") || slices.Contains(words, "--help")
}

// TestDocumentedCommands: commands of the documents have known flags and arguments, and quick ones run.
func TestDocumentedCommands(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	ran, checked, made := 0, 0, 0
	for _, file := range documents(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range codeLine.FindAllStringSubmatch(resultBlock.ReplaceAllString(string(text), ""), -1) {
			line := strings.TrimSpace(strings.TrimRight(strings.TrimSpace(m[1]+m[2]), `&\`))
			if seen[line] {
				continue
			}
			seen[line] = true
			words := shellWord.FindAllString(line, -1)
			for i, word := range words {
				words[i] = strings.Trim(word, `'"`)
			}
			if words[0] == "make" {
				made++
				for _, word := range words[1:] {
					if name, _, is := strings.Cut(word, "="); is {
						if !regexp.MustCompile(`\$\(` + name + `\)|\(or \$\(` + name + `\)|if \$\(` + name + `\)`).Match(makefile) {
							t.Errorf("%s: %s: the Makefile has no variable %s", file, line, name)
						}
					} else if !regexp.MustCompile(`(?m)^` + word + `:`).Match(makefile) {
						t.Errorf("%s: %s: the Makefile has no target %s", file, line, word)
					}
				}
				continue
			}
			words = words[1:]
			if at := slices.Index(words, ">"); at >= 0 {
				words = words[:at]
			}
			if len(words) == 0 || placeholder.MatchString(words[0]) {
				continue
			}
			if quick(words) && !slices.ContainsFunc(words, placeholder.MatchString) {
				ran++
				t.Run(strings.Join(words, " "), func(t *testing.T) {
					t.Chdir("../..")
					if status, _, stderr := invoke(t, words...); status != exitDone && words[0] != "doctor" {
						t.Errorf("%s: status %d: %s", file, status, stderr)
					}
				})
				continue
			}
			checked++
			root := newRoot(streams{})
			groupCommands(root, false)
			cmd, rest, err := root.Find(words)
			if err != nil || cmd == root {
				t.Errorf("%s: %s: no such command (%v)", file, line, err)
				continue
			}
			if err := cmd.ParseFlags(rest); err != nil && !slices.ContainsFunc(rest, placeholder.MatchString) {
				t.Errorf("%s: %s: %v", file, line, err)
			}
			if err := cmd.ValidateFlagGroups(); err != nil {
				t.Errorf("%s: %s: %v", file, line, err)
			}
		}
	}
	t.Logf("of the documents' commands %d ran, %d were checked, and %d are targets of make", ran, checked, made)
	if ran < 5 || checked < 30 || made < 10 {
		t.Errorf("%d, %d and %d commands: the test overlooks some", ran, checked, made)
	}
}
