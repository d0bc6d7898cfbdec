package conntrack

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

var nodeAddr = netip.MustParseAddr("192.0.2.1")

func newCleaner(t *testing.T, table Table) *Cleaner {
	t.Helper()
	c, err := NewCleaner(Options{
		Table:  table,
		Family: corev1.IPv4Protocol,
		Local:  func() (func(netip.Addr) bool, error) { return NodeLocal([]netip.Addr{nodeAddr}, false), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func clean(t *testing.T, c *Cleaner, want Pass) {
	t.Helper()
	got, err := c.Clean(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("cleaned %+v, want %+v", got, want)
	}
}

func TestCleanLooksOnlyWhenSomethingWasLost(t *testing.T) {
	dns := frontend("10.96.0.10:53")
	a, b := ap("10.1.0.1:53"), ap("10.1.0.2:53")
	steps := []struct {
		name    string
		do      func(*Cleaner)
		pending bool
	}{
		{"a first look", func(*Cleaner) {}, true},
		{"nothing", func(*Cleaner) {}, false},
		{"a new frontend", func(c *Cleaner) { c.Set(dns, NewEndpoints(a)) }, true},
		{"the same again", func(c *Cleaner) { c.Set(dns, NewEndpoints(a)) }, false},
		{"an endpoint more", func(c *Cleaner) { c.Set(dns, NewEndpoints(a, b)) }, false},
		{"an endpoint less", func(c *Cleaner) { c.Set(dns, NewEndpoints(b)) }, true},
		{"another endpoint", func(c *Cleaner) { c.Set(dns, NewEndpoints(a)) }, true},
		{"the last endpoint gone", func(c *Cleaner) { c.Set(dns, nil) }, true},
		{"still none", func(c *Cleaner) { c.Set(dns, nil) }, false},
		{"endpoints again", func(c *Cleaner) { c.Set(dns, NewEndpoints(a)) }, true},
		{"deleted", func(c *Cleaner) { c.Remove(dns) }, true},
		{"deleted again", func(c *Cleaner) { c.Remove(dns) }, false},
		{"asked for", func(c *Cleaner) { c.Force() }, true},
	}
	c := newCleaner(t, &Memory{})
	for _, step := range steps {
		step.do(c)
		if c.Pending() != step.pending {
			t.Errorf("%s: pending %v, want %v", step.name, c.Pending(), step.pending)
		}
		clean(t, c, Pass{})
	}
}

func TestRestartWithUnchangedServicesDeletesNothing(t *testing.T) {
	table := &Memory{}
	table.Add(flow("10.96.0.10:53", "10.1.0.1:53"), flow("192.0.2.1:30053", "10.1.0.1:53"))
	c := newCleaner(t, table)
	serving := NewEndpoints(ap("10.1.0.1:53"))
	c.Set(frontend("10.96.0.10:53"), serving)
	c.Set(NodePort(30053), serving)
	clean(t, c, Pass{Visited: 2})
}

// TestFailureLosesNothing changes a Service's endpoint several times and deletes the Service, while cleaning fails. The
// next successful Clean deletes all its flows.
func TestFailureLosesNothing(t *testing.T) {
	broken := errors.New("netlink broke")
	table := &Memory{}
	c := newCleaner(t, table)
	dns := frontend("10.96.0.10:53")
	clean(t, c, Pass{})

	table.Fail(broken)
	for i := range 3 {
		endpoint := fmt.Sprintf("10.1.0.%d:53", i+1)
		table.Add(flow("10.96.0.10:53", endpoint), flow("10.96.0.99:53", endpoint))
		c.Set(dns, NewEndpoints(ap(endpoint)))
		if _, err := c.Clean(t.Context()); !errors.Is(err, broken) {
			t.Fatalf("Clean of a broken table: %v", err)
		}
	}
	c.Remove(dns)
	table.Fail(nil)
	clean(t, c, Pass{Visited: 6, Deleted: 3})
	clean(t, c, Pass{})
}

func TestUnknownNodeAddressesHoldBackOnlyNodePorts(t *testing.T) {
	broken := errors.New("no rtnetlink")
	table := &Memory{}
	table.Add(flow("10.96.0.10:53", "10.1.0.9:53"), flow("192.0.2.1:30053", "10.1.0.9:53"))
	var localErr error
	c, err := NewCleaner(Options{Table: table, Family: corev1.IPv4Protocol, Local: func() (func(netip.Addr) bool, error) {
		return NodeLocal([]netip.Addr{nodeAddr}, false), localErr
	}})
	if err != nil {
		t.Fatal(err)
	}
	serving := NewEndpoints(ap("10.1.0.1:53"))
	localErr = broken
	c.Set(frontend("10.96.0.10:53"), serving)
	clean(t, c, Pass{Visited: 2, Deleted: 1}) // without a NodePort, Local is not called

	c.Set(NodePort(30053), serving)
	if _, err := c.Clean(t.Context()); !errors.Is(err, broken) || !c.Pending() {
		t.Errorf("Clean without node addresses: %v, pending %v", err, c.Pending())
	}
	localErr = nil
	clean(t, c, Pass{Visited: 1, Deleted: 1})
}

func TestCleanerOptions(t *testing.T) {
	if _, err := NewCleaner(Options{Family: corev1.IPv4Protocol}); err == nil {
		t.Error("a cleaner without a table was accepted")
	}
	if _, err := NewCleaner(Options{Table: &Memory{}, Family: "IPv5"}); err == nil {
		t.Error("family IPv5 was accepted")
	}
	c := newCleaner(t, &Memory{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Clean(ctx); !errors.Is(err, context.Canceled) || !c.Pending() {
		t.Errorf("Clean with a cancelled context: %v, pending %v", err, c.Pending())
	}
}

// TestRandomHistories changes Services at random while flows begin under the current rules. After each successful
// Clean, every flow to a Service goes to a serving endpoint, and no flow goes to a deleted Service. Foreign flows are
// untouched.
func TestRandomHistories(t *testing.T) {
	const histories, changes = 15, 150
	for seed := range uint64(histories) {
		rng := rand.New(rand.NewPCG(seed, 0))
		table := &Memory{}
		foreign := []Flow{
			flow("192.0.2.99:30000", "192.0.2.99:30000"), // the port number of a NodePort at another machine
			flow("192.0.2.99:30001", "10.1.0.1:53"),
			flow("192.0.2.1:40000", "10.8.0.1:80"), // a host port
			flow("8.8.8.8:53", "8.8.8.8:53"),
		}
		table.Add(foreign...)
		c := newCleaner(t, table)
		rules := map[Frontend]Endpoints{}
		for step := range changes {
			f := frontend(fmt.Sprintf("10.96.0.%d:53", rng.IntN(4)))
			if rng.IntN(2) == 0 {
				f = NodePort(uint16(30000 + rng.IntN(4)))
			}
			if rng.IntN(4) == 0 {
				delete(rules, f)
				c.Remove(f)
			} else {
				var addrs []netip.AddrPort
				for range rng.IntN(4) {
					addrs = append(addrs, ap(fmt.Sprintf("10.1.0.%d:53", rng.IntN(6))))
				}
				rules[f] = NewEndpoints(addrs...)
				c.Set(f, rules[f])
			}
			for _, f := range sortedFrontends(rules) { // new flows meet the new rules
				if serving := rules[f]; len(serving) > 0 {
					table.Add(flow(destination(f).String(), serving[rng.IntN(len(serving))].String()))
				}
			}
			if rng.IntN(3) == 0 {
				table.Fail(errors.New("for now"))
				_, _ = c.Clean(t.Context())
				table.Fail(nil)
				continue
			}
			if _, err := c.Clean(t.Context()); err != nil {
				t.Fatal(err)
			}
			left := table.Flows()
			for _, f := range foreign {
				if !slices.Contains(left, f) {
					t.Fatalf("seed %d, step %d: foreign flow to %v deleted", seed, step, f.Dst)
				}
			}
			for _, f := range left[len(foreign):] {
				to := Frontend{Addr: f.Dst.Addr(), Port: f.Dst.Port()}
				if f.Dst.Addr() == nodeAddr {
					to = NodePort(f.Dst.Port())
				}
				if !rules[to].Contains(f.ReplySrc) {
					t.Fatalf("seed %d, step %d: flow to %v still goes to %v", seed, step, f.Dst, f.ReplySrc)
				}
			}
		}
	}
}

func destination(f Frontend) netip.AddrPort {
	if f.IsNodePort() {
		return netip.AddrPortFrom(nodeAddr, f.Port)
	}
	return netip.AddrPortFrom(f.Addr, f.Port)
}

func sortedFrontends(rules map[Frontend]Endpoints) []Frontend {
	var list []Frontend
	for f := range rules {
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b Frontend) int { return destination(a).Compare(destination(b)) })
	return list
}

// Recalled endpoints count as former ones until a Clean succeeds, and only if no endpoint serves the frontend.
func TestRecall(t *testing.T) {
	table := &Memory{}
	c, err := NewCleaner(Options{Table: table, Family: corev1.IPv4Protocol})
	if err != nil {
		t.Fatal(err)
	}
	clean(t, c, Pass{})
	c.Recall(frontend("10.96.0.10:53"), nil)
	if c.Pending() {
		t.Error("a recalled frontend without endpoints made a Clean necessary")
	}
	c.Set(frontend("10.96.0.11:53"), NewEndpoints(ap("10.1.0.2:53")))
	c.Recall(frontend("10.96.0.10:53"), NewEndpoints(ap("10.1.0.1:53")))
	c.Recall(frontend("10.96.0.10:53"), NewEndpoints(ap("10.1.0.2:53")))
	c.Recall(frontend("10.96.0.11:53"), NewEndpoints(ap("10.1.0.1:53"), ap("10.1.0.2:53")))
	table.Add(
		flow("10.96.0.10:53", "10.1.0.1:53"), flow("10.96.0.10:53", "10.1.0.2:53"), flow("10.96.0.11:53", "10.1.0.1:53"), // these three are deleted
		flow("10.96.0.10:53", "10.1.0.3:53"), flow("10.96.0.11:53", "10.1.0.2:53"),
	)
	table.Fail(errors.New("no memory"))
	if _, err := c.Clean(t.Context()); err == nil {
		t.Fatal("no error")
	}
	table.Fail(nil)
	clean(t, c, Pass{Visited: 5, Deleted: 3})
	table.Add(flow("10.96.0.10:53", "10.1.0.1:53"))
	c.Force()
	clean(t, c, Pass{Visited: 3})
}
