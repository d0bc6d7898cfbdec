package proxier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"synclab/internal/seedstest"
	"synclab/proxier/backend"
	"synclab/proxier/iptables"
)

// foreigners are external writes to the proxier's tables.
var foreigners = map[string]func(*faulty){
	"nat flushed":            func(f *faulty) { f.tool("-t", "nat", "-F"); f.tool("-t", "nat", "-X") },
	"nat rules flushed":      func(f *faulty) { f.tool("-t", "nat", "-F") },
	"filter flushed":         func(f *faulty) { f.tool("-F"); f.tool("-X") },
	"a jump deleted":         func(f *faulty) { f.tool("-t", "nat", "-D", "OUTPUT", "1") },
	"a filter jump deleted":  func(f *faulty) { f.tool("-D", "FORWARD", "1") },
	"a jump further down":    func(f *faulty) { f.tool("-D", "INPUT", "3"); f.tool("-D", "FORWARD", "2") },
	"a Service's chain":      func(f *faulty) { f.tool("-t", "nat", "-F", f.chain("KUBE-SVC-")) },
	"an endpoint's chain":    func(f *faulty) { f.tool("-t", "nat", "-F", f.chain("KUBE-SEP-")) },
	"a rule more":            func(f *faulty) { f.tool("-t", "nat", "-A", "KUBE-SERVICES", "-j", "RETURN") },
	"a chain more":           func(f *faulty) { f.tool("-t", "nat", "-N", "KUBE-SVC-AAAAAAAAAAAAAAAA") },
	"nat's canary deleted":   func(f *faulty) { f.tool("-t", "nat", "-X", "KUBE-PROXY-CANARY") },
	"mangle flushed":         func(f *faulty) { f.tool("-t", "mangle", "-F"); f.tool("-t", "mangle", "-X") },
	"a dispatch rule":        func(f *faulty) { f.tool("-t", "nat", "-D", "KUBE-SERVICES", "1") },
	"the firewall emptied":   func(f *faulty) { f.tool("-F", "KUBE-FIREWALL") },
	"an empty chain deleted": deleteEmptyChain,
}

// deleteEmptyChain deletes the chain of firewalls, which has no rules here, and all jumps to it.
func deleteEmptyChain(f *faulty) {
	for _, from := range []string{"INPUT", "FORWARD", "OUTPUT"} {
		f.tool("-D", from, "-m", "conntrack", "--ctstate", "NEW", "-m", "comment", "--comment", "kubernetes load balancer firewall", "-j", "KUBE-PROXY-FIREWALL")
	}
	f.tool("-X", "KUBE-PROXY-FIREWALL")
}

// chain returns the first Service chain with rules whose name begins with prefix.
func (f *faulty) chain(prefix string) string {
	f.t.Helper()
	var found []string
	for line := range strings.Lines(kernelSaved(f.t, f.variant, f.cluster.family)) {
		if strings.HasPrefix(line, "-A "+prefix) {
			found = append(found, strings.Fields(line)[1])
		}
	}
	if len(found) == 0 {
		f.t.Fatalf("no chain %s…", prefix)
	}
	return slices.Min(found)
}

// plain adds Services without firewalls, with the given number of endpoints each.
func (f *faulty) plain(services, endpoints int) {
	for i := 1; i <= services; i++ {
		f.udpService(i, "10.128.1.1", 5353, time.Time{})
		key := [2]int{100 + i, 0}
		slice := f.cluster.slices[key].DeepCopy()
		slice.Endpoints = nil
		for n := range endpoints {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{fmt.Sprintf("10.128.%d.%d", i, n+1)}, NodeName: ptr.To(f.node.Name),
			})
		}
		f.cluster.slices[key] = slice
		f.tracker.SetSlice(slice, f.clock.Now())
	}
}

// The next check finds every external write to the proxier's tables, and the next sync repairs it.
func TestDrift(t *testing.T) {
	for name, externalWrite := range foreigners {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			eachVariant(t, func(t *testing.T, f *faulty) {
				f.plain(3, 2)
				f.mustSync()
				externalWrite(f)
				if f.checkDrift(f.t.Context()); f.full != "drift" {
					found, err := f.backend.Drift()(f.t.Context())
					t.Fatalf("requested a full sync for %q, want drift (thorough check: %q, %v)", f.full, found, err)
				}
				f.mustSync()
				f.converged()
			})
		})
	}
}

// Drift is also found in a large cluster, where no full sync runs by time alone.
func TestDriftInLargeCluster(t *testing.T) {
	eachVariant(t, func(t *testing.T, f *faulty) {
		f.plain(6, 200)
		f.mustSync()
		for _, name := range []string{"nat flushed", "an endpoint's chain", "filter flushed"} {
			foreigners[name](f)
			if f.checkDrift(f.t.Context()); f.full != "drift" {
				t.Fatalf("%s: requested a full sync for %q, want drift", name, f.full)
			}
			f.mustSync()
			f.converged()
		}
	})
}

// A partial sync just after a flush leaves a fingerprint that does not show the flush. The check finds the flush all
// the same.
func TestDriftBeforePartial(t *testing.T) {
	eachVariant(t, func(t *testing.T, f *faulty) {
		f.plain(3, 2)
		f.mustSync()
		f.tool("-t", "nat", "-F", f.chain("KUBE-SVC-"))
		f.plain(4, 2)
		f.mustSync()
		if f.checkDrift(f.t.Context()); f.full != "drift" {
			t.Fatalf("requested a full sync for %q, want drift", f.full)
		}
		f.mustSync()
		f.converged()
	})
}

// The check also finds a flush during the partial sync, before or after the kernel took the rules.
func TestDriftDuringPartial(t *testing.T) {
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("after=%t", after), func(t *testing.T) {
			eachVariant(t, func(t *testing.T, f *faulty) {
				f.plain(3, 2)
				f.mustSync()
				chain := f.chain("KUBE-SVC-")
				for n := range 2 { // the second round has no external write
					externalWrite := func() {
						f.tool("-t", "nat", "-D", chain, "1")
						f.tables.begun, f.tables.restored = nil, nil
					}
					if n == 0 && after {
						f.tables.restored = externalWrite
					} else if n == 0 {
						f.tables.begun = externalWrite
					}
					f.plain(4+n, 2)
					f.mustSync()
					f.checks = 0 // not the check that reads the tables whatever the fingerprint
					f.checkDrift(f.t.Context())
					if want := []string{"drift", ""}[n]; f.full != want || n == 1 && f.suspect {
						t.Fatalf("sync %d: requested a full sync for %q, want %q (suspect: %t)", n, f.full, want, f.suspect)
					}
					f.mustSync()
					f.converged()
				}
			})
		})
	}
}

// Foreign rules in built-in chains are no drift, and the proxier leaves them in place.
func TestForeignRulesStay(t *testing.T) {
	eachVariant(t, func(t *testing.T, f *faulty) {
		f.tool("-t", "nat", "-A", "POSTROUTING", "-s", "172.17.0.0/16", "-j", "MASQUERADE")
		f.plain(3, 2)
		f.mustSync()
		f.tool("-I", "INPUT", "-p", "tcp", "--dport", "22", "-j", "ACCEPT")
		f.tool("-N", "OTHERS")
		f.tool("-A", "OTHERS", "-j", "RETURN")
		before := kernelSaved(t, f.variant, f.cluster.family)
		f.quiet()
		f.demandFull("test")
		f.mustSync()
		if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(kernelSaved(t, f.variant, f.cluster.family), "\n")); diff != "" {
			t.Errorf("a full sync changed foreign rules (-before +after):\n%s", diff)
		}
	})
}

// A proxier that starts over its predecessor's rules leaves them as they are, and no rule is missing meanwhile. Its
// sync is one payload that deletes no chain, and the kernel takes each table in one step.
func TestRestart(t *testing.T) {
	eachVariant(t, func(t *testing.T, f *faulty) {
		f.events(60)
		f.mustSync()
		before := kernelSaved(t, f.variant, f.cluster.family)
		next := f.successor()
		next.mustSync()
		next.converged()
		if diff := cmp.Diff(before, kernelSaved(t, f.variant, f.cluster.family)); diff != "" {
			t.Errorf("restarted (-before +after):\n%s", diff)
		}
		if len(next.tables.payloads) != 1 {
			t.Fatalf("%d payloads, want one", len(next.tables.payloads))
		}
		for line := range strings.Lines(next.tables.payloads[0]) {
			if strings.HasPrefix(line, "-X") || strings.HasPrefix(line, "-F") || strings.HasPrefix(line, "-D") {
				t.Errorf("the first payload of a restart has %s", line)
			}
		}
		for _, once := range []string{"*nat\n", "*filter\n", "COMMIT\n*nat\n"} {
			if strings.Count(next.tables.payloads[0], once) != 1 {
				t.Errorf("the payload does not contain %q exactly once", once)
			}
		}
	})
}

// A killed predecessor left chains of Services that are now gone. The next proxier deletes them at its start.
func TestStaleChainsOfPredecessor(t *testing.T) {
	eachVariant(t, func(t *testing.T, f *faulty) {
		f.plain(5, 3)
		f.events(60)
		f.mustSync()
		f.remove(1)
		f.remove(2)
		f.events(60)
		next := f.successor()
		next.mustSync()
		next.converged()
	})
}

// A running proxier notices a flush within a sync period and repairs it without any event.
func TestRunMendsDrift(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	for _, variant := range []iptables.Variant{iptables.Legacy, iptables.Nft} {
		t.Run(string(variant), func(t *testing.T) {
			// The proxier's goroutines are in the namespace of the process, as is this one.
			f := newFaulty(t, variant, newRandomCluster(seedstest.Of(t), corev1.IPv4Protocol))
			clear := func() {
				for _, table := range []string{"nat", "filter", "mangle"} {
					f.tool("-t", table, "-F")
					f.tool("-t", table, "-X")
				}
			}
			clear()
			t.Cleanup(clear)
			syncs := make(chan Sync, 100)
			p := f.running(func(s Sync) { syncs <- s })
			await := func(reason string) {
				t.Helper()
				for s := range syncs {
					if s.Err != nil {
						t.Fatal(s.Err)
					}
					if s.Reason == reason {
						return
					}
				}
			}
			await("start")
			if err := p.WaitIdle(t.Context()); err != nil {
				t.Fatal(err)
			}
			compareWithKernel(t, variant, f.cluster)
			f.tool("-t", "nat", "-F")
			await("drift")
			compareWithKernel(t, variant, f.cluster)
		})
	}
}

// running is a proxier on the same tables with all objects of the cluster. It runs until the test ends.
func (f *faulty) running(onSync func(Sync)) *Proxier {
	f.t.Helper()
	opts := *f.opts
	opts.Config.IPTables.SyncPeriod.Duration = time.Second
	opts.Registry, opts.OnSync = nil, onSync
	p, err := New(opts)
	if err != nil {
		f.t.Fatal(err)
	}
	p.engines[0].setNode(f.node)
	for range 60 {
		f.cluster.step(p.engines[0])
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			f.t.Error(err)
		}
	})
	return p
}

// A cancelled check starts no further tool and reports nothing.
func TestDriftCheckEndsWithContext(t *testing.T) {
	eachVariant(t, func(t *testing.T, f *faulty) {
		f.plain(1, 1)
		f.mustSync()
		foreigners["a jump deleted"](f)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if found, err := f.backend.Drift()(ctx); found != "" || !errors.Is(err, context.Canceled) {
			t.Errorf("drift %q, %v; want it canceled", found, err)
		}
		if err := f.tables.EnsureJumps(ctx, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("jumps: %v; want it canceled", err)
		}
		if f.checkDrift(ctx); f.full != "" {
			t.Errorf("requested a full sync for %q, want none", f.full)
		}
	})
}

// interrupted calls during at the beginning of each comparison, with its number.
type interrupted struct {
	Backend
	during func(read int)
	reads  int
}

func (b *interrupted) Drift() backend.Comparison {
	compare := b.Backend.Drift()
	return func(ctx context.Context) (string, error) {
		b.reads++
		b.during(b.reads)
		return compare(ctx)
	}
}

// A sync may run while a check reads the tables. What the check found is discarded then, and its last attempt keeps
// syncs waiting.
func TestSyncDuringDriftCheck(t *testing.T) {
	eachVariant(t, func(t *testing.T, f *faulty) {
		f.plain(1, 2)
		f.mustSync()
		b := &interrupted{Backend: f.backend}
		b.during = func(read int) {
			if held := len(f.syncing) > 0; held != (read == driftTries) {
				t.Fatalf("read %d: syncs have to wait: %t", read, held)
			} else if !held {
				f.plain(1+read, 2)
				f.mustSync()
			}
		}
		f.backend, f.suspect = b, true
		defer func() { f.backend = b.Backend }()
		if f.checkDrift(t.Context()); b.reads != driftTries || f.full != "" || f.suspect {
			t.Errorf("%d reads, a full sync for %q, suspect: %t", b.reads, f.full, f.suspect)
		}
	})
}
