package main

import (
	"fmt"
	"os"
	"path"
	"strings"
)

// skips are the allowed skips.
type skips struct{ all []allowed }

type allowed struct{ pkg, test string }

// readSkips reads a list. Each line has a package without the module's name, a test, and the reason of the skip; "#"
// begins a comment. "*" in a test matches text between slashes. A test includes its subtests.
func readSkips(file string) (*skips, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s := &skips{}
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
		s.all = append(s.all, allowed{fields[0], fields[1]})
	}
	return s, nil
}

func (s *skips) allow(pkg, test string) bool {
	_, short, _ := strings.Cut(pkg, "/")
	for _, a := range s.all {
		if a.pkg != short {
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
