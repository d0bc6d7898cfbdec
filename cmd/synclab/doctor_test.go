package main

import (
	"bytes"
	"encoding/json"
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
