package layout

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// budgetFile has the largest number of lines of each top folder, without tests.
const budgetFile = "lines.txt"

// forTests reports whether a file is a test, or of a package that only tests import: the name of its folder ends with "test".
func forTests(s source) bool {
	return s.test || strings.HasSuffix(path.Base(s.folder), "test") && roomOf(s.folder) != "scripts"
}

// overBudget compares the lines of each folder with its budget, in both directions: a folder that got smaller lowers its own.
func overBudget(lines, budget map[string]int) (out []string) {
	for _, room := range slices.Sorted(maps.Keys(lines)) {
		switch most, known := budget[room]; {
		case !known:
			out = append(out, fmt.Sprintf("%s has no line in %s: want \"%s %d\"", room, budgetFile, room, lines[room]))
		case lines[room] > most:
			out = append(out, fmt.Sprintf("%s has %d lines without tests, and %s allows %d. Let something go; or raise it in a commit of its own that says what a user gets for it",
				room, lines[room], budgetFile, most))
		case lines[room] < most-slack:
			out = append(out, fmt.Sprintf("%s has %d lines without tests, and %s allows %d: lower it", room, lines[room], budgetFile, most))
		}
	}
	return out
}

// slack is how far a folder may be below its budget, so that not each commit has to change the file.
const slack = 500

func TestLines(t *testing.T) {
	lines, budget := map[string]int{}, map[string]int{}
	for _, s := range sources(t) {
		if forTests(s) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(top, s.name))
		if err != nil {
			t.Fatal(err)
		}
		lines[roomOf(s.folder)] += bytes.Count(text, []byte("\n"))
	}
	text, err := os.ReadFile(budgetFile)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var room string
		var most int
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if _, err := fmt.Sscan(line, &room, &most); err != nil {
			t.Fatalf("%s: %q: want a folder and a number of lines", budgetFile, line)
		}
		budget[room] = most
	}
	for _, problem := range overBudget(lines, budget) {
		t.Error(problem)
	}
}

// TestLinesAreCounted breaks each rule.
func TestLinesAreCounted(t *testing.T) {
	for _, c := range []struct {
		lines int
		ok    bool
	}{{1000, true}, {1001, false}, {1000 - slack, true}, {1000 - slack - 1, false}} {
		if problems := overBudget(map[string]int{"sim": c.lines}, map[string]int{"sim": 1000}); (problems == nil) != c.ok {
			t.Errorf("%d lines: %q", c.lines, problems)
		}
	}
	if overBudget(map[string]int{"new": 1}, nil) == nil {
		t.Error("a folder without a budget")
	}
	for _, c := range []struct {
		of   source
		want bool
	}{{source{folder: "bench", test: true}, true}, {source{folder: "bench/internal/virtualtest"}, true}, {source{folder: "reports/reportstest"}, true}, {source{folder: "bench/traffic/flow"}, false}, {source{folder: "scripts/gotest"}, false}} {
		if forTests(c.of) != c.want {
			t.Errorf("%+v: want %v", c.of, c.want)
		}
	}
}
