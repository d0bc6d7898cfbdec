package check

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/shim"
	"synclab/bench/pass"
	"synclab/bench/verify/invariants"
	"synclab/proxier/iptables/rule"
	"synclab/scenarios"
)

// A failed restore is evidence if no other process wrote between the readings before and after it. Its intended tables
// are known if nothing has changed since. I5 then checks what it left.
func TestFailedRestoresAreEvidence(t *testing.T) {
	const ipv4 = corev1.IPv4Protocol
	start := time.Unix(1_000_000_000, 0)
	at := func(second int) time.Time { return start.Add(time.Duration(second) * time.Second) }
	call := func(tool string, second int) shim.Call {
		return shim.Call{Tool: tool, PID: second, Start: at(second), End: at(second + 1)}
	}
	tables := func(rules ...string) invariants.Saved {
		const chains = "*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-A - [0:0]\n"
		text := chains + "-A PREROUTING -j KUBE-SERVICES\n" + strings.Join(rules, "\n") + "\nCOMMIT\n"
		saved, err := rule.ParseTables(ipv4, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return invariants.Saved(saved).Reachable()
	}
	jump, endpoint := "-A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-A", "-A KUBE-SVC-A -p tcp -j DNAT --to-destination 10.0.0.1:80"
	none, half, whole := tables(), tables(jump), tables(jump, endpoint)
	unreached := tables(endpoint)

	for _, c := range []struct {
		what      string
		after     invariants.Saved
		others    []shim.Call
		settled   invariants.Saved
		unchanged int // no change since this second
		restores  int
		checked   int
		violated  bool
	}{
		{what: "nothing was written", after: none, settled: whole, restores: 1, checked: 1},
		{what: "nothing that packets come to was written", after: unreached, settled: whole, restores: 1, checked: 1},
		{what: "all was written", after: whole, settled: whole, restores: 1, checked: 1},
		{what: "half was written", after: half, settled: whole, restores: 1, checked: 1, violated: true},
		{what: "half was written before things changed", after: half, settled: whole, unchanged: 20, restores: 1},
		{what: "half was written, and nothing has settled", after: half, restores: 1},
		{what: "nothing was written before things changed", after: none, settled: whole, unchanged: 20, restores: 1, checked: 1},
		{what: "another wrote after it", after: half, others: []shim.Call{call("iptables-restore", 12)}, settled: whole},
		{what: "another wrote before it", after: half, others: []shim.Call{call("iptables-restore", 7)}, settled: whole},
		{
			what: "another wrote for the other family", after: half, others: []shim.Call{call("ip6tables-restore", 12)},
			settled: whole, restores: 1, checked: 1, violated: true,
		},
		{
			what: "another wrote when the tables had been read", after: half, settled: whole,
			others:   []shim.Call{call("iptables-restore", 3), call("iptables-restore", 15)},
			restores: 1, checked: 1, violated: true,
		},
	} {
		t.Run(c.what, func(t *testing.T) {
			var seen restores
			failed := call("iptables-restore", 10)
			failed.ExitCode = 1
			seen.add(call("iptables-restore", 4), reading{from: at(6), to: at(8), tables: none}, false)
			seen.add(failed, reading{from: at(12), to: at(14), tables: c.after}, true)
			settled := map[corev1.IPFamily]invariants.Saved{ipv4: c.settled}
			e := &invariants.Evidence{Restores: seen.evidence(append(c.others, failed), settled, at(c.unchanged))}
			if len(e.Restores) != c.restores {
				t.Fatalf("%d restores are evidence, want %d", len(e.Restores), c.restores)
			}
			results, err := invariants.Check(t.Context(), e, []string{"I5"})
			if err != nil {
				t.Fatal(err)
			}
			if c.checked == 0 {
				if len(results) > 0 {
					t.Errorf("I5 was checked without evidence: %+v", results)
				}
				return
			}
			if len(results) != 1 || results[0].Checked != c.checked || len(results[0].Findings) > 0 != c.violated {
				t.Errorf("%+v; want %d tables checked, violated: %v", results, c.checked, c.violated)
			}
			seen.forget()
			if again := seen.evidence(nil, settled, start); len(again) > 0 {
				t.Errorf("kept from before the check: %+v", again)
			}
		})
	}
}

// Tables are read after every restore only if restores are made to fail, and a check includes I5.
func TestLooksAtRestores(t *testing.T) {
	fault := func(kind string) scenarios.Step { return scenarios.Step{Fault: &scenarios.Fault{Kind: kind}} }
	check := func(invariants ...string) scenarios.Step {
		return scenarios.Step{Check: &scenarios.Check{Invariants: invariants}}
	}
	for _, c := range []struct {
		what  string
		steps []scenarios.Step
		want  bool
	}{
		{"all invariants", []scenarios.Step{fault(scenarios.FaultRestoreFails), check()}, true},
		{"I5 among them", []scenarios.Step{check("I1", "I5"), fault(scenarios.FaultRestoreKilled)}, true},
		{"others", []scenarios.Step{fault(scenarios.FaultRuleRefused), check("I1", "I9")}, false},
		{"no check", []scenarios.Step{fault(scenarios.FaultRestoreFails)}, false},
		{"no fault of restores", []scenarios.Step{fault(scenarios.FaultFlush), check()}, false},
	} {
		r := &Checks{Env: &pass.Env{Assignment: pass.Assignment{Scenario: scenarios.Scenario{Steps: c.steps}}}}
		if got := r.looksAtRestores(); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}
