package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"synclab/bench/lab/machine"
)

func TestDoctorOutput(t *testing.T) {
	check := func(name string, status machine.Status) machine.Check {
		return machine.Check{Name: name, Status: status, Detail: "as it is", Remedy: "mend " + name}
	}
	for _, c := range []struct {
		name   string
		checks []machine.Check
		usable bool
	}{
		{"both variants", []machine.Check{check("iptables-legacy-restore", machine.OK), check("iptables-nft-restore", machine.OK)}, true},
		{"one variant, limited", []machine.Check{check("iptables-legacy-restore", machine.Absent), check("iptables-nft-restore", machine.Warn)}, true},
		{"IPv6 only", []machine.Check{check("iptables-legacy-restore", machine.Fail), check("ip6tables-legacy-restore", machine.OK)}, false},
		{"no namespaces", []machine.Check{check("namespaces", machine.Fail), check("iptables-legacy", machine.OK)}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var table, text bytes.Buffer
			d := diagnosis{Checks: c.checks}
			if err := examine(&table, "table", d); (err == nil) != c.usable {
				t.Errorf("error %v; want one unless usable (%v)", err, c.usable)
			}
			for _, check := range c.checks {
				listed := strings.Contains(table.String(), "mend "+check.Name)
				if wanted := check.Status != machine.OK; listed != wanted {
					t.Errorf("remedy of %s (%s): listed %v:\n%s", check.Name, check.Status, listed, table.String())
				}
			}
			_ = examine(&text, "json", d) // the error is checked above
			var back diagnosis
			if err := json.Unmarshal(text.Bytes(), &back); err != nil || len(back.Checks) != len(c.checks) {
				t.Errorf("JSON: %v\n%s", err, text.String())
			}
		})
	}
}

// A remedy names the command of the system's package manager.
func TestInstalls(t *testing.T) {
	const remedy = "install the iptables package (in newer distributions the package iptables-legacy)"
	for _, c := range []struct{ tool, remedy, want string }{
		{"apt-get", remedy, ": as root, apt-get install -y iptables"},
		{"dnf", remedy, ": as root, dnf install -y --setopt=strict=0 iptables-nft iptables-legacy (untried on this system)"},
		{"apk", "install the nftables package", ": as root, apk add nftables (untried on this system)"},
		{"dnf", "load the kernel module: modprobe veth", ""},
		{"none", remedy, ""},
	} {
		got := installs(c.remedy, func(tool string) (string, error) {
			if tool != c.tool {
				return "", exec.ErrNotFound
			}
			return tool, nil
		})
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.tool, got, c.want)
		}
	}
}
