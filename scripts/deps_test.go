// Package scripts has the tests of this folder's shell scripts.
package scripts

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A machine whose distribution lacks an optional package gets all others.
func TestDepsTriesOptionalPackagesAlone(t *testing.T) {
	for _, file := range []string{"deps.sh", "tools.txt"} { // the cache of go test knows only what the test itself opens
		if _, err := os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	bin, calls := t.TempDir(), filepath.Join(t.TempDir(), "calls")
	for name, script := range map[string]string{
		"id":      "echo 0",
		"apt-get": `echo "$*" >>"$CALLS"; case " $* " in *" linux-perf "*) echo "E: Unable to locate package linux-perf"; exit 100 ;; esac`,
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, tool := range []string{"sh", "dirname", "tr", "xargs", "echo", "mktemp", "tail", "rm", "sed"} {
		path, err := exec.LookPath(tool)
		if err == nil {
			err = os.Symlink(path, filepath.Join(bin, tool))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "sh"), "deps.sh", "ci")
	cmd.Env = []string{"PATH=" + bin, "CALLS=" + calls}
	output, err := cmd.CombinedOutput()
	text, readErr := os.ReadFile(calls)
	if err := errors.Join(err, readErr); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	const install = "install -y --no-install-recommends "
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) < 4 || lines[0] != "update" || !strings.HasPrefix(lines[1], install) || !strings.Contains(lines[1], " git ") || strings.Contains(lines[1], "linux-perf") {
		t.Fatalf("calls of apt-get:\n%s", text)
	}
	if last := lines[len(lines)-1]; last != install+"crun" || !strings.Contains(string(text), "\n"+install+"linux-perf\n") {
		t.Errorf("calls of apt-get:\n%s", text)
	}
	if want := "without linux-perf, which some tests need: E: Unable to locate package linux-perf"; !strings.Contains(string(output), want) {
		t.Errorf("output lacks %q:\n%s", want, output)
	}
}
