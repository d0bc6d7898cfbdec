package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"synclab/bench/lab/upstream"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/proxier/iptables"
)

// checkedScenario has everything that invariants need: Services of all types and protocols, some without endpoints;
// changes, a restart over unchanged objects, and a fault.
const checkedScenario = `name: checked
description: "invariants after changes and a restart"
seed: 7
shape:
  services: 30
  ports: 2
  endpoints: {distribution: uniform, min: 1, max: 7}
  types: {NodePort: 0.2, LoadBalancer: 0.1, Headless: 0.05}
  protocols: {UDP: 0.4}
  externalIPs: 0.1
  sourceRanges: 0.5
  affinity: 0.1
  internalLocal: 0.1
  externalLocal: 0.6
  withoutEndpoint: 0.2
  notReady: 0.1
  terminating: 0.05
  topologyHints: 0.2
proxy: {minSyncPeriod: 100ms, syncPeriod: 2s}
steps:
  - create: {}
  - settle:
  - check: {}
  - churn: {rate: 50, events: 40, kind: mixed}
  - settle:
  - restart:
  - settle:
  - check: {}
`

// runChecked runs checkedScenario, with other last steps if given.
func runChecked(t *testing.T, subjects []string, steps string) []raw.Record {
	t.Helper()
	text := checkedScenario
	if steps != "" {
		text, _, _ = strings.Cut(text, "steps:\n")
		text += "steps:\n" + steps
	}
	file := filepath.Join(t.TempDir(), "checked.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, records := runScenario(t, "run", file, "--feed", "api", "--subjects", strings.Join(subjects, ","))
	return records
}

// available returns the subjects whose tools the machine has.
func available(t *testing.T, names ...string) []string {
	t.Helper()
	var found []string
	for _, name := range names {
		subject, err := subject.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := subject.Available(); err != nil {
			t.Log(err)
			continue
		}
		found = append(found, name)
	}
	return found
}

// The lab's own proxier violates no invariant, and every invariant that applies to it is checked twice.
func TestCheckFindsNothing(t *testing.T) {
	measures(t)
	subjects := available(t, "synclab/iptables-legacy-tree", "synclab/iptables-nft", "synclab/nftables")
	records := runChecked(t, subjects, "")
	for _, subject := range subjects {
		looked := map[string]int{}
		for _, r := range records {
			switch {
			case r.Subject != subject:
			case r.Metric == raw.Violation:
				t.Errorf("%s: %s %s %s: %s", subject, r.Step, r.Invariant, r.Service, r.Error)
			case r.Metric == raw.InvariantChecks && r.Value > 0:
				looked[r.Invariant]++
			}
		}
		for _, invariant := range []string{"I1", "I2", "I3", "I4", "I6", "I7", "I8", "I9", "I10", "I11", "I12", "I14"} {
			if looked[invariant] != 2 {
				t.Errorf("%s: %s was checked %d times", subject, invariant, looked[invariant])
			}
		}
		if looked["I13"] != 1 {
			t.Errorf("%s: I13 was checked %d times, want after the restart", subject, looked["I13"])
		}
		if want := strings.Contains(subject, "iptables"); (looked["I5"] == 2) != want {
			t.Errorf("%s: I5 was checked %d times", subject, looked["I5"])
		}
	}
}

// External writes are found if the subject does not repair them (k/k#129128). Every violation has the command that
// reproduces it.
func TestCheckFindsAFlush(t *testing.T) {
	measures(t)
	const subject = "kube-proxy/iptables-legacy"
	needKubeProxy(t)
	records := runChecked(t, available(t, subject), `  - create: {}
  - settle:
  - fault: {kind: flush, table: nat}
  - check: {invariants: [I1, I2, I6, I7]}
`)
	violated := map[string]int{}
	for _, r := range records {
		if r.Metric != raw.Violation {
			continue
		}
		violated[r.Invariant]++
		if r.Value < 1 || !strings.Contains(r.Error, "; seed 7; reproduce with: synclab ") {
			t.Errorf("%+v", r)
		}
	}
	for _, invariant := range []string{"I1", "I2", "I6"} {
		if violated[invariant] == 0 {
			t.Errorf("%s is not violated: %v", invariant, violated)
		}
	}
	if violated["I7"] > 0 {
		t.Errorf("sentinels that the lab itself flushed count as lost: %v", violated)
	}
}

// brokenRestore wraps the real tool. In the first restore of the second proxier that calls it, it omits the Services'
// dispatch rules, and fails.
const brokenRestore = `#!/bin/sh
here=$SYNCLAB_LAB_DIR # a subject may write only there
case " $* " in *" --noflush "*) ;; *) exec %[1]s "$@" ;; esac
cat >"$here/input.$$"
proxier=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$PPID/status")
grep -q "^-A KUBE-SEP-" "$here/input.$$" || exec %[1]s "$@" <"$here/input.$$"
[ -e "$here/first" ] || echo "$proxier" >"$here/first"
if [ "$(cat "$here/first")" = "$proxier" ] || [ -e "$here/broken" ]; then
	exec %[1]s "$@" <"$here/input.$$"
fi
touch "$here/broken"
grep -v "^-A KUBE-SERVICES " "$here/input.$$" | %[1]s "$@"
echo "iptables-restore: it broke off" >&2
exit 1
`

// A tool that leaves a table half written is found, although the proxier repairs the table: the tables before and after
// the failed restore show it. Without faults of restores, only converged tables are checked.
func TestCheckFindsABrokenRestore(t *testing.T) {
	skipShort(t)
	const tool, subject = "iptables-legacy-restore", "synclab/iptables-legacy"
	subjects := available(t, subject)
	if len(subjects) == 0 {
		t.Skip("no iptables-legacy here")
	}
	path, err := iptables.FindBinary(tool)
	if err != nil {
		t.Fatal(err)
	}
	steps := `  - create: {}
  - settle:
  - restart:
  - settle:
  - check: {invariants: [I1, I5]}
`
	for _, c := range []struct {
		what, steps string
		violated    bool
	}{
		{"restores fail", strings.Replace(steps, "  - restart:", "  - fault: restore-fails\n  - restart:", 1), true},
		{"no fault makes restores fail", steps, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, tool), fmt.Appendf(nil, brokenRestore, path), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			records := runChecked(t, subjects, c.steps)
			if !slices.ContainsFunc(records, func(r raw.Record) bool {
				return r.Metric == raw.SyncFailed && strings.Contains(r.Error, "it broke off")
			}) {
				t.Fatal("no restore was broken")
			}
			violated := map[string]string{}
			for _, r := range records {
				if r.Metric == raw.Violation {
					violated[r.Invariant] += r.Error + "\n"
				}
			}
			if text := violated["I5"]; strings.Contains(text, "after a failed restore is neither what it was") != c.violated {
				t.Errorf("I5: %q", text)
			}
			delete(violated, "I5")
			if len(violated) > 0 {
				t.Errorf("a table that the proxier repaired is violated: %v", violated)
			}
			if !checked(records, subject, "I5") {
				t.Error("I5 was not checked in converged tables")
			}
		})
	}
}

// needKubeProxy skips a test that needs an unmodified kube-proxy, if none is built.
func needKubeProxy(t *testing.T) {
	t.Helper()
	_, _, err := upstream.KubeProxy(t.Context(), upstream.Options{CachedOnly: true})
	if errors.Is(err, upstream.ErrNotBuilt) && os.Getenv("SYNCLAB_REQUIRE_KUBE_PROXY") == "" {
		t.Skip("no kube-proxy here; 'synclab build kube-proxy' builds it")
	}
	if err != nil {
		t.Fatal(err)
	}
}
