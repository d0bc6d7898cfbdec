package main

import (
	"fmt"
	"os"
	"path"
	"strings"
)

// skips are the allowed skips. later: another run repeats the skipped tests.
type skips struct {
	all   []allowed
	later bool
}

type allowed struct {
	pkg, test string
	later     bool // only if another run repeats it
}

// readSkips reads a list. Each line has a package without the module's name, a test, and the reason of the skip; "#"
// begins a comment. "*" in a test matches text between slashes. A test includes its subtests. The reason "later: …"
// allows the skip only in a run whose skipped tests are repeated.
func readSkips(file string, later bool) (*skips, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s := &skips{later: later}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) < 3 {
			return nil, fmt.Errorf("%s:%d: want a package, a test and the reason", file, number)
		}
		if _, err := path.Match(fields[1], ""); err != nil {
			return nil, fmt.Errorf("%s:%d: %s: %w", file, number, fields[1], err)
		}
		s.all = append(s.all, allowed{fields[0], fields[1], fields[2] == "later:"})
	}
	return s, nil
}

func (s *skips) allow(pkg, test string) bool {
	_, short, _ := strings.Cut(pkg, "/")
	for _, a := range s.all {
		if a.pkg != short || a.later && !s.later {
			continue
		}
		for name := test; ; {
			if ok, _ := path.Match(a.test, name); ok {
				return true
			}
			at := strings.LastIndex(name, "/")
			if at < 0 {
				break
			}
			name = name[:at]
		}
	}
	return false
}
