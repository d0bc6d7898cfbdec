// Command words searches the project's code, comments, messages and documents for words that make texts hard to read, and
// for comments that begin with an old name of what they describe.
//
//	go run ./scripts/words [FOLDER]
//
// banned.txt has the patterns and their replacements. The exit status is 1 if one is found.
package main

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

//go:embed banned.txt
var banned string

// rule is one line of banned.txt.
type rule struct {
	pattern *regexp.Regexp
	instead string
}

// kinds are the extensions of files with prose.
var kinds = []string{".go", ".md", ".yaml", ".yml", ".tmpl", ".txtar", ".sh", ""}

// skipped are files that have foreign texts, measured results, a system user with a banned name, or the list itself.
var skipped = []string{"LICENSE", ".ci/run", "sim/manifests/testdata/fuzz/", "docs/sample/", "scripts/words/banned.txt", "scripts/words/main_test.go"}

func main() {
	folder := "."
	if len(os.Args) > 1 {
		folder = os.Args[1]
	}
	found, err := check(folder, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(2)
	}
	if found > 0 {
		fmt.Fprintf(os.Stderr, "words: %d places to rewrite\n", found)
		os.Exit(1)
	}
}

// check prints every banned word in git's files, and returns their number.
func check(folder string, out io.Writer) (found int, err error) {
	rules, err := parse(banned)
	if err != nil {
		return 0, err
	}
	list := exec.Command("git", "ls-files", "-z")
	list.Dir = folder
	names, err := list.Output()
	if err != nil {
		return 0, fmt.Errorf("git ls-files: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(names), "\x00"), "\x00") {
		if !slices.Contains(kinds, filepath.Ext(name)) || slices.ContainsFunc(skipped, func(s string) bool { return strings.HasPrefix(name, s) }) {
			continue
		}
		n, err := checkFile(folder, name, rules, out)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // deleted, but not committed yet
			return found, err
		}
		found += n
		if filepath.Ext(name) != ".go" || errors.Is(err, os.ErrNotExist) {
			continue
		}
		old, err := oldNames(filepath.Join(folder, name))
		if err != nil {
			return found, err
		}
		for _, line := range old {
			fmt.Fprintln(out, line)
		}
		found += len(old)
	}
	return found, nil
}

func checkFile(folder, name string, rules []rule, out io.Writer) (found int, err error) {
	file, err := os.Open(filepath.Join(folder, name))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for number := 1; lines.Scan(); number++ {
		for _, r := range rules {
			if word := r.pattern.FindString(lines.Text()); word != "" {
				fmt.Fprintf(out, "%s:%d: %q: write %s\n", name, number, word, r.instead)
				found++
			}
		}
	}
	return found, lines.Err()
}

// parse reads lines "pattern, tab, replacement". Lines that begin with # are comments.
func parse(text string) ([]rule, error) {
	var rules []rule
	for i, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pattern, instead, ok := strings.Cut(line, "\t")
		if !ok {
			return nil, fmt.Errorf("banned.txt:%d: want a pattern, a tab and the replacement", i+1)
		}
		compiled, err := regexp.Compile("(?i)" + pattern)
		if err != nil {
			return nil, fmt.Errorf("banned.txt:%d: %w", i+1, err)
		}
		rules = append(rules, rule{compiled, instead})
	}
	return rules, nil
}
