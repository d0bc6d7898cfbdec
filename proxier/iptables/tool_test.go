package iptables

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
)

// The error for a missing tool names the package that contains it.
func TestFindBinaryNamesThePackage(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	old := sbin
	sbin = nil
	t.Cleanup(func() { sbin = old })
	for tool, want := range map[string]string{
		"nft": "nftables", "ip": "iproute2", "conntrack": "conntrack", "iptables-legacy-restore": "iptables", "ip6tables-nft": "iptables",
	} {
		_, err := FindBinary(tool)
		if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "install the "+want+" package") {
			t.Errorf("%s: %v; want the package %s", tool, err, want)
		}
	}
}
