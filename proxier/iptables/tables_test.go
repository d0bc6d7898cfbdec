package iptables

import (
	"os/exec"
	"strings"
	"testing"
)

// Reading ends with the last line that is wanted, whatever the command would still print; a failed command is an error.
func TestEachLine(t *testing.T) {
	var lines []string
	err := eachLine(exec.Command("yes", "KUBE"), func(line []byte) bool {
		lines = append(lines, string(line))
		return len(lines) < 3
	})
	if err != nil || strings.Join(lines, "|") != "KUBE|KUBE|KUBE" {
		t.Errorf("%q, %v", lines, err)
	}
	for script, want := range map[string]string{"echo a; exit 3": "exit status 3", "head -c 3000000 /dev/zero": "token too long"} {
		if err := eachLine(exec.Command("sh", "-c", script), func([]byte) bool { return true }); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", script, err, want)
		}
	}
}
