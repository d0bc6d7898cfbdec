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
		{"--virtual --minutes 3", "--minutes has no meaning"},
		{"--subjects cilium", `"cilium" is not known`},
	} {
		status, _, stderr := invoke(t, append([]string{"soak"}, strings.Fields(c.args)...)...)
		if status != exitUsage || !strings.Contains(stderr, c.want) {
			t.Errorf("soak %s: status %d, %s", c.args, status, stderr)
		}
	}
}
