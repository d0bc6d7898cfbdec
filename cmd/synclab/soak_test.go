package main

import (
	"strings"
	"testing"
)

func TestSoakUsage(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--without flsh", `"flsh"`},
		{"--minutes 0", "--minutes"},
		{"--feed informers", "--feed"},
		{"--subjects cilium", `"cilium" is not known`},
	} {
		status, _, stderr := invoke(t, append([]string{"soak", "--out", t.TempDir()}, strings.Fields(c.args)...)...)
		if status != exitUsage || !strings.Contains(stderr, c.want) {
			t.Errorf("soak %s: status %d, %s", c.args, status, stderr)
		}
	}
}
