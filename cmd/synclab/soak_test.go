package main

import (
	"strings"
	"testing"
)

func TestSoakUsage(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--without flsh", `"flsh"`},
		{"--budget 0s", "synclab: --budget 0s: want more than 0\n"},
		{"--duration -1s", "synclab: --duration -1s: want more than 0\n"},
		{"--services 0", "synclab: --services 0: want at least 1\n"},
		{"--tries 0", "synclab: --tries 0: want at least 1\n"},
		{"--minimize -1s", "synclab: --minimize -1s: want 0"},
		{"--seeds -1", "synclab: --seeds -1: want at least 1\n"},
		{"--feed informers", "--feed"},
		{"--subjects cilium", `"cilium" is not known`},
	} {
		status, _, stderr := invoke(t, append([]string{"soak"}, strings.Fields(c.args)...)...)
		if status != exitUsage || !strings.Contains(stderr, c.want) {
			t.Errorf("soak %s: status %d, %s", c.args, status, stderr)
		}
	}
}
