package reports

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"synclab/bench/lab/shell"
	"synclab/bench/raw"
	"synclab/reports/reportstest"
)

// The command of a run does what the run did when it is pasted, whatever its words are. Text that would do more, and that of
// another user's run, has no button.
func TestCommandsToPaste(t *testing.T) {
	small := reportstest.Churning
	small.Sizes, small.Reps, small.Churn, small.Probe = []int{100}, 2, 4, 2
	dir, bin := filepath.Join(t.TempDir(), "run"), t.TempDir()
	small.Write(t, dir)
	offered := func(command string) bool {
		t.Helper()
		reportstest.EditRun(t, dir, func(run *raw.Run) { run.Command = command })
		out := filepath.Join(t.TempDir(), "out")
		if _, err := Build([]string{dir}, out, Options{NoPNG: true}); err != nil {
			t.Fatal(err)
		}
		page, err := os.ReadFile(filepath.Join(out, "index.html"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), `<pre tabindex="0"`) {
			t.Error("the page shows no command")
		}
		return !strings.Contains(string(page), `<pre tabindex="0" class="inert">`)
	}
	words := []string{"run", "$(touch pasted)", "`touch pasted`", "it's; touch pasted", "a\ntouch pasted", `\`, "> pasted", ""}
	command := shell.Line(append([]string{"synclab"}, words...)...)
	if !offered(command) {
		t.Errorf("not offered: %s", command)
	}
	if err := os.WriteFile(filepath.Join(bin, "synclab"), []byte("#!/bin/sh\nprintf '%s\\000' \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	pasted := exec.CommandContext(t.Context(), "/bin/sh")
	pasted.Dir, pasted.Env, pasted.Stdin = t.TempDir(), []string{"PATH=" + bin + ":/usr/bin:/bin"}, strings.NewReader(command+"\n")
	got, err := pasted.Output()
	if err != nil || string(got) != strings.Join(words, "\x00")+"\x00" {
		t.Errorf("the program got %q, %v; want %q", got, err, words)
	}
	if left, err := os.ReadDir(pasted.Dir); err != nil || len(left) > 0 {
		t.Errorf("pasting made %v (%v)", left, err)
	}
	for _, command := range []string{"synclab run $(touch pasted)", "synclab run; touch pasted", "sh -c id", "synclab run `id`", "synclab run\nid"} {
		if offered(command) {
			t.Errorf("offered: %s", command)
		}
	}
	if os.Geteuid() != 0 {
		return // only root can give a run away
	}
	if err := os.Chown(dir, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if offered(command) {
		t.Error("another user's command is offered")
	}
}
