package shell

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Only lines that Line writes are calls: nothing of another one may be copied to a shell.
func TestCalls(t *testing.T) {
	for _, words := range [][]string{{"synclab"}, {"synclab", "run", "it's", "$(id)", "a b", "", "`id`", "x'y'z", "'", "a\nb", `\`}} {
		if line := Line(words...); !Calls("synclab", line) {
			t.Errorf("%s is no call", line)
		}
	}
	for _, line := range []string{"", " ", "id", "synclab; id", "synclab $(id)", "synclab `id`", "synclab run | sh", "synclab\nid", "synclab run\nid", "synclab 'a' b'", "synclab \"$(id)\"",
		"synclab '", `synclab \`, "synclab  run", "x=1 synclab", "synclab run &", "synclab >file", "'synclab run'", "synclab run #x", "synclab ~/x", "synclab *"} {
		if Calls("synclab", line) {
			t.Errorf("%q is taken for a call", line)
		}
	}
}

// A shell must read the same words again.
func TestLine(t *testing.T) {
	words := []string{"--set", "steps.1.settle.timeout=9s", "", "two words", "it's", `"$HOME"`, "`id`", "a\nb", "~/x", "*", "exec:own=proxy --flag", "é", "#", "!", "a;b", `\`}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s\000' `+Line(words...)).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(got, words) {
		t.Errorf("%q, want %q", got, words)
	}
	if got := Line("synclab", "run", "-f", "./a_b.yaml", "--subjects", "synclab/iptables-nft,kube-proxy@v1.36.3/nftables+tuned"); strings.Contains(got, "'") {
		t.Errorf("quotes that are not needed: %s", got)
	}
}
