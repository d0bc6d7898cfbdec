package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What cannot end well is refused before anything is built or measured.
func TestMeasuringRefuses(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "mine"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"pr --base v1.36.3 --head v1.36.3":                                     "synclab: kube-proxy@v1.36.3/iptables-legacy is given twice",
		"pr --base v1.36.3 --head v1.37.2 --modes nftables,nftables":           "kube-proxy@v1.36.3/nftables is given twice",
		"pr --base v1.36.3 --head v1.37.2 --modes nftables --out " + full:      "is not empty: choose another folder",
		"pr --base v1.36.3 --head v1.37.2 --modes nftables --precision 2":      "--precision",
		"pr --base v1.36.3 --head v1.37.2 --of cilium":                         `--of "cilium": want kube-proxy or synclab`,
		"published blog-first-packet --out " + full:                            "is not empty: choose another folder",
		"published no-such-claim":                                              `there is no claim "no-such-claim"`,
		"pr --base v1.36.3 --head v1.37.2 --modes iptables-legacy --budget 0s": "--budget 0s",
	} {
		if status, _, stderr := invoke(t, strings.Fields(args)...); status != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: status %d, want %q: %s", args, status, want, stderr)
		}
	}
}
