package proxier

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
)

// bad is the endpoint port whose rules the test's restores refuse.
const bad = 6666

// refusedRules make a rule that is refused: by the tool while it reads, or by the kernel when the table is committed.
var refusedRules = map[string]string{
	"unknown-match": `/:6666$/s/ -j DNAT/ -m nosuchmatch&/`,
	"wrong-hook":    `/:6666$/s/ -j DNAT .*/ -j MASQUERADE/`,
	"wrong-table":   `/:6666$/s/ -j DNAT .*/ -j REJECT/`,
	"loop":          `s/^-A \(KUBE-SEP-[A-Z0-9]*\) .*:6666$/-A \1 -j \1/`,
}

// A Service port whose rules are refused is reported and left out; all others are served. It is installed again as soon
// as it changes to rules that are accepted.
func TestRefusedRules(t *testing.T) {
	for name, change := range refusedRules {
		t.Run(name, func(t *testing.T) {
			eachVariant(t, func(t *testing.T, f *faulty) {
				f.prepare = filtered(`sed '` + change + `' | "$0" "$@"`)
				f.events(60)
				f.udpService(1, "10.128.1.1", 5353, time.Time{})
				f.udpService(2, "10.128.1.2", bad, time.Time{})
				f.udpService(3, "10.128.1.3", bad, time.Time{})
				f.mustSync()
				f.refuses("made-2", "made-3")
				f.comparesWithout(2, 3)

				// The previous rules stay while the new ones are refused.
				f.remove(3)
				f.udpService(2, "10.128.1.2", 5353, time.Time{})
				f.mustSync()
				f.refuses()
				f.converged()
				before := kernelSaved(t, f.variant, f.cluster.family)
				f.udpService(2, "10.128.1.4", bad, time.Time{})
				f.mustSync()
				f.refuses("made-2")
				f.quiet()
				if now := kernelSaved(t, f.variant, f.cluster.family); now != before {
					t.Errorf("the new rules were refused, but the tables changed to:\n%s\nbefore:\n%s", now, before)
				}

				// Other Services are served meanwhile.
				f.udpService(4, "10.128.1.5", 5353, time.Time{})
				f.mustSync()
				f.refuses("made-2")
				if now := kernelSaved(t, f.variant, f.cluster.family); !strings.Contains(now, "10.128.1.5:5353") {
					t.Error("a Service was not written because another one is refused")
				}
				f.quiet()

				f.udpService(2, "10.128.1.4", 5353, time.Time{})
				f.mustSync()
				f.refuses()
				f.converged()
			})
		})
	}
}

// A starting proxier has rules that the kernel refuses. While it isolates them, Services with installed rules are
// served.
func TestRefusedAtStart(t *testing.T) {
	for _, name := range []string{"wrong-hook", "loop"} { // refused by the kernel, without a report of the rule
		t.Run(name, func(t *testing.T) {
			eachVariant(t, func(t *testing.T, f *faulty) {
				f.events(60)
				f.udpService(1, "10.128.1.1", 5353, time.Time{})
				f.mustSync()

				f = f.successor()
				f.prepare = filtered(`sed '` + refusedRules[name] + `' | "$0" "$@"`)
				f.udpService(2, "10.128.1.2", bad, time.Time{})
				f.tables.restored = func() {
					if now := kernelSaved(t, f.variant, f.cluster.family); !strings.Contains(now, "10.128.1.1:5353") {
						t.Error("a Service lost its rules while those of another one are refused")
					}
				}
				f.mustSync()
				f.refuses("made-2")
				f.comparesWithout(2)
			})
		})
	}
}

func (f *faulty) refuses(names ...string) {
	f.t.Helper()
	var got []string
	for _, r := range f.last.Refused {
		got = append(got, r.Port.NamespacedName.Name)
		if r.Err == nil {
			f.t.Errorf("%s is refused without a cause", r.Port)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, names) {
		f.t.Fatalf("refused: %v, want %v", got, names)
	}
}

// comparesWithout checks that the kernel has the rules of a fresh start without some of the made Services.
func (f *faulty) comparesWithout(made ...int) {
	f.t.Helper()
	without := &randomCluster{family: f.cluster.family, services: map[int]*corev1.Service{}, slices: f.cluster.slices}
	for i, svc := range f.cluster.services {
		if !slices.Contains(made, i-100) {
			without.services[i] = svc
		}
	}
	compareWithKernel(f.t, f.variant, without)
	f.quiet()
}

// More Services may be refused than one sync isolates one by one.
func TestManyRefused(t *testing.T) {
	eachVariant(t, func(t *testing.T, f *faulty) {
		f.prepare = filtered(`sed '` + refusedRules["unknown-match"] + `' | "$0" "$@"`)
		var made []int
		var names []string
		const many = 70 // more than one sync isolates one by one
		for i := 1; i <= many; i++ {
			f.udpService(i, fmt.Sprintf("10.128.1.%d", i), bad, time.Time{})
			made, names = append(made, i), append(names, fmt.Sprintf("made-%d", i))
		}
		f.udpService(200, "10.128.1.200", 5353, time.Time{})
		f.mustSync()
		slices.Sort(names)
		f.refuses(names...)
		f.comparesWithout(made...)
	})
}

// A partial payload is refused because chains that it jumps to are gone. The sync writes everything and blames no
// Service port.
func TestPartialOnMissingChains(t *testing.T) {
	eachVariant(t, func(t *testing.T, f *faulty) {
		f.udpService(1, "10.128.1.1", 5353, time.Time{})
		f.events(40)
		f.mustSync()
		f.tool("-t", "nat", "-F")
		f.tool("-t", "nat", "-X")
		f.udpService(2, "10.128.1.2", 5353, time.Time{})
		f.mustSync()
		f.refuses()
		if f.last.Kind != Full {
			t.Errorf("the sync was %s", f.last.Kind)
		}
		f.converged()
	})
}

// A foreign rule jumps to one of the proxier's chains. That chain cannot be deleted; everything else is written.
func TestForeignReference(t *testing.T) {
	eachVariant(t, func(t *testing.T, f *faulty) {
		f.udpService(1, "10.128.1.1", 5353, time.Time{})
		f.events(20)
		f.mustSync()
		chains, err := f.tables.Chains(iptables.NAT)
		if err != nil {
			t.Fatal(err)
		}
		var own string
		for _, c := range chains {
			if strings.Contains(kernelSaved(t, f.variant, f.cluster.family), "-A "+c+" -p udp -m comment --comment \"ns/made-1:dns\" -m udp -j DNAT") {
				own = c
			}
		}
		if own == "" {
			t.Fatal("no chain of the endpoint")
		}
		f.tool("-t", "nat", "-N", "FOREIGN")
		f.tool("-t", "nat", "-A", "FOREIGN", "-j", own)
		f.remove(1)
		f.events(20)
		f.mustSync()
		f.refuses()
		f.quiet()
		for _, sync := range []func(){func() {}, func() { f.demandFull("test"); f.mustSync() }} {
			sync()
			now := kernelSaved(t, f.variant, f.cluster.family)
			if !strings.Contains(now, ":"+own+" ") || strings.Contains(now, "-A "+own) {
				t.Errorf("the referenced chain should exist and be empty:\n%s", now)
			}
		}
		f.tool("-t", "nat", "-F", "FOREIGN")
		f.tool("-t", "nat", "-X", "FOREIGN")
		f.demandFull("test")
		f.mustSync()
		f.converged()
	})
}

// Foreign rules jump to more chains than a sync tries one by one.
func TestManyForeignReferences(t *testing.T) {
	eachVariant(t, func(t *testing.T, f *faulty) {
		const services = 16
		f.plain(services, 4)
		f.mustSync()
		chains, err := f.tables.Chains(iptables.NAT)
		if err != nil {
			t.Fatal(err)
		}
		f.tool("-t", "nat", "-N", "FOREIGN")
		var referred []string
		for _, c := range chains {
			if iptables.IsServiceChain(c) {
				f.tool("-t", "nat", "-A", "FOREIGN", "-j", c)
				referred = append(referred, c)
			}
		}
		if len(referred) <= 64 {
			t.Fatalf("%d chains are referenced, want more than 64", len(referred))
		}
		for i := range services {
			f.remove(i + 1)
		}
		f.mustSync()
		f.refuses()
		now := kernelSaved(t, f.variant, f.cluster.family)
		for _, c := range referred {
			if !strings.Contains(now, ":"+c+" ") || strings.Contains(now, "-A "+c+" ") {
				t.Fatalf("chain %s should exist and be empty:\n%s", c, now)
			}
		}
		f.quiet()
		f.tool("-t", "nat", "-F", "FOREIGN")
		f.tool("-t", "nat", "-X", "FOREIGN")
		// The foreign rules may be gone before the proxier reads the fingerprint of the sync that kept the chains.
		if f.fingerprint, err = f.backend.Fingerprint(); err != nil {
			t.Fatal(err)
		}
		if f.checkDrift(t.Context()); f.full != "drift" { // the chains can be deleted now
			t.Fatalf("requested a full sync for %q, want drift", f.full)
		}
		f.mustSync()
		f.converged()
	})
}

// Packet counts are switched off first when a payload is refused (the nfacct match may be missing, k/k#142068). No
// Service port is blamed for packet counts, and packet counts are not blamed for a Service port.
func TestPacketCountsRefused(t *testing.T) {
	eachVariant(t, func(t *testing.T, f *faulty) {
		f.opts.Machine.Accounting, f.opts.Machine.Liberal = true, false
		f.udpService(1, "10.128.1.1", 5353, time.Time{})
		f.mustSync() // the kernel has no such counter: it was never made
		f.refuses()
		if f.backend.Settings().Accounting || len(f.last.Runs) != 2 {
			t.Errorf("%d restores, packet counts: %v", len(f.last.Runs), f.backend.Settings().Accounting)
		}
		f.demandFull("test")
		f.mustSync()
		if len(f.last.Runs) != 1 {
			t.Errorf("%d restores: the refused packet counts were tried again", len(f.last.Runs))
		}
		f.converged()

		if err := kernel.EnsureAccounts(iptables.AccountInvalid, iptables.AccountLocalNodePorts); err != nil {
			t.Skip(err)
		}
		next := f.successor()
		next.opts.Machine = f.opts.Machine
		next.prepare = filtered(`sed '` + refusedRules["unknown-match"] + `' | "$0" "$@"`)
		next.udpService(2, "10.128.1.2", bad, time.Time{})
		next.mustSync()
		next.refuses("made-2")
		next.udpService(2, "10.128.1.2", 5353, time.Time{})
		next.demandFull("test")
		next.mustSync()
		next.refuses()
		if saved := kernelSaved(t, f.variant, f.cluster.family); !strings.Contains(saved, iptables.AccountInvalid) {
			t.Errorf("no packet counts:\n%s", saved)
		}
	})
}

// Output of the tools when they or the kernel refused the payload, and when they failed before reading it.
func TestRefused(t *testing.T) {
	const append4 = "iptables-nft-restore v1.8.9 (nf_tables): \nline 6: RULE_APPEND failed (%s): rule in chain OUTPUT"
	for _, c := range []struct {
		exit, line int
		stderr     string
		want       bool
	}{
		{1, 7, "iptables-restore: line 7 failed", true},
		{2, 7, "Error occurred at line: 7", true},
		{4, 6, fmt.Sprintf(append4, "Too many links"), true},
		{4, 6, fmt.Sprintf(append4, "Cannot allocate memory"), false},
		{4, 6, fmt.Sprintf(append4, "No buffer space available"), false},
		{4, 0, "Another app is currently holding the xtables lock.", false},
		{-1, 0, "", false},
		{1, 0, "iptables-restore: unable to initialize table 'nat'", false},
	} {
		err := &iptables.RestoreError{ExitCode: c.exit, Line: c.line, Stderr: c.stderr, Err: errors.New("exit status")}
		if got := err.Refused(); got != c.want {
			t.Errorf("exit %d, %q: refused %v, want %v", c.exit, c.stderr, got, c.want)
		}
	}
}
