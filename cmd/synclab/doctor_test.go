package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"synclab/bench"
)

func TestDoctorOutput(t *testing.T) {
	check := func(name string, status bench.Status) bench.Check {
		return bench.Check{Name: name, Status: status, Detail: "as it is", Remedy: "mend " + name}
	}
	for _, c := range []struct {
		name   string
		checks []bench.Check
		usable bool
	}{
		{"both variants", []bench.Check{check("iptables-legacy-restore", bench.OK), check("iptables-nft-restore", bench.OK)}, true},
		{"one variant, limited", []bench.Check{check("iptables-legacy-restore", bench.Absent), check("iptables-nft-restore", bench.Warn)}, true},
		{"IPv6 only", []bench.Check{check("iptables-legacy-restore", bench.Fail), check("ip6tables-legacy-restore", bench.OK)}, false},
		{"no namespaces", []bench.Check{check("namespaces", bench.Fail), check("iptables-legacy", bench.OK)}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var table, text bytes.Buffer
			d := diagnosis{Checks: c.checks}
			if err := examine(&table, "table", d); (err == nil) != c.usable {
				t.Errorf("error %v; want one unless usable (%v)", err, c.usable)
			}
			for _, check := range c.checks {
				listed := strings.Contains(table.String(), "mend "+check.Name)
				if wanted := check.Status != bench.OK; listed != wanted {
					t.Errorf("remedy of %s (%s): listed %v:\n%s", check.Name, check.Status, listed, table.String())
				}
			}
			_ = examine(&text, "json", d) // the verdict was looked at above
			var back diagnosis
			if err := json.Unmarshal(text.Bytes(), &back); err != nil || len(back.Checks) != len(c.checks) {
				t.Errorf("JSON: %v\n%s", err, text.String())
			}
		})
	}
}
