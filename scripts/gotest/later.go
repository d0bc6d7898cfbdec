package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// writeTests writes tests, one a line: the package and the name of the test.
func writeTests(file string, tests []key) error {
	var b bytes.Buffer
	for _, k := range tests {
		fmt.Fprintln(&b, k.pkg, k.test)
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

// readTests reads what writeTests wrote, by package.
func readTests(file string) (map[string][]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	tests := map[string][]string{}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		pkg, test, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			return nil, fmt.Errorf("%s:%d: want a package and a test", file, number)
		}
		tests[pkg] = append(tests[pkg], test)
	}
	return tests, nil
}

// pattern matches exactly these tests, and subtests of them. go test splits its -run at "|" first, and then at "/".
func pattern(tests []string) string {
	var all []string
	for _, test := range tests {
		parts := strings.Split(test, "/")
		for i, part := range parts {
			parts[i] = "^" + regexp.QuoteMeta(part) + "$"
		}
		all = append(all, strings.Join(parts, "/"))
	}
	return strings.Join(all, "|")
}
