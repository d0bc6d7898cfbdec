package shell

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

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
