package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// missing is in the error of a command that needs a tool or rights which are missing here; the error says which.
var missing = regexp.MustCompile(`not (found )?on PATH|run as root`)

// TestResultsCommands parses the commands of 'make results', and the commands that documents name as the source of
// numbers.
func TestResultsCommands(t *testing.T) {
	text, err := os.ReadFile("../../docs/results.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Parts []struct {
			Name     string
			Commands []string
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var commands []string
	placeholder := regexp.MustCompile(`\{[A-Za-z]+:?([0-9]*)\}`)
	for _, part := range file.Parts {
		for n, command := range part.Commands {
			made := strings.Contains(command, "-f {part}") // the part makes the file
			command = placeholder.ReplaceAllString(command, "${1}")
			if script := strings.Fields(command)[0]; strings.HasSuffix(script, ".sh") {
				if _, err := os.Stat("../../" + script); err != nil {
					t.Error(err)
				}
				continue
			}
			commands = append(commands, command)
			args := strings.Fields(command)
			if made || args[0] != "run" && args[0] != "compare" {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", part.Name, n+1), func(t *testing.T) {
				status, _, stderr := invoke(t, append(args, "--dry-run")...)
				if status == exitFailed && missing.MatchString(stderr) {
					t.Skip(stderr)
				}
				if status != exitDone {
					t.Errorf("synclab %s: status %d: %s", command, status, stderr)
				}
			})
		}
	}
	documents, err := os.ReadDir("../../docs/sample")
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{"../../README.md"}
	for _, d := range documents {
		if strings.HasSuffix(d.Name(), ".md") {
			paths = append(paths, "../../docs/sample/"+d.Name())
		}
	}
	published := 0
	quoted := regexp.MustCompile("`synclab ([^`]+)`")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(text), "\n") {
			if !strings.HasPrefix(line, "Measured ") {
				continue
			}
			published++
			found := quoted.FindAllStringSubmatch(line, -1)
			if len(found) == 0 && !strings.Contains(line, "`make results PART=") { // that has many commands
				t.Errorf("%s: no command in %q", path, line)
			}
			for _, match := range found {
				commands = append(commands, match[1])
			}
		}
	}
	if published == 0 {
		t.Error("no document has the date of its numbers")
	}
	for _, command := range commands {
		command = strings.TrimPrefix(command, "-") // its status 1 is a verdict
		if err := parses(command); err != nil {
			t.Errorf("synclab %s: %v", command, err)
		}
	}
	for _, command := range []string{"gone", "run --gone", "run --reps many"} {
		if parses(command) == nil {
			t.Errorf("synclab %s: want an error", command)
		}
	}
}

// parses returns the error of a command line.
func parses(command string) error {
	root := newRoot(streams{strings.NewReader(""), io.Discard, io.Discard})
	cmd, args, err := root.Find(strings.Fields(command))
	if err != nil {
		return err
	}
	if cmd == root {
		return errors.New("no such command")
	}
	return cmd.ParseFlags(args)
}
