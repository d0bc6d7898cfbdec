package nftables

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"synclab/bench/verify/walk"
	"synclab/bench/verify/walk/walktest"
	"synclab/proxier/backend"
	"synclab/proxier/iptables"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

var quietClock clock.PassiveClock = clocktesting.NewFakePassiveClock(time.Unix(0, 0))

// loaded returns a model after a full sync.
func loaded(t *testing.T, settings backend.Settings, ports []*plan.ServicePort) (*Ruleset, *Model) {
	t.Helper()
	m, r := NewModel(settings.Family), NewRuleset(settings)
	if err := r.Load(m, ports); err != nil {
		t.Fatal(err)
	}
	if err := r.Activate(m); err != nil {
		t.Fatal(err)
	}
	return r, m
}

func rulesOf(t *testing.T, m *Model) *walk.Rules {
	t.Helper()
	rules, err := walk.CompileNftables(m.Family, &m.Table)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// classic returns the rules of layout classic.
func classic(t *testing.T, settings backend.Settings, c *cluster) *walk.Rules {
	t.Helper()
	m := iptables.NewModel(c.family)
	b, err := iptables.New(iptables.Options{
		Options: backend.Options{
			Settings: func() (backend.Settings, error) { return settings, nil }, Clock: quietClock,
			Log: func(message string, kv ...any) { t.Log(append([]any{message}, kv...)...) },
		},
		Tables: m, Layout: iptables.Classic,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Sync(context.Background(), backend.Request{Full: true, Ports: c.plan.Ports(), Endpoints: c.plan.KnownEndpoints()}); err != nil {
		t.Fatal(err)
	}
	rules, err := walk.CompileIptables(c.family, m.Tables())
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func walked(t *testing.T, w *walk.Walker, p *walk.Packet) walk.Result {
	t.Helper()
	v, err := w.Walk(p)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// onNode reports whether an address may be that of an endpoint on this node.
func (c *cluster) onNode(addr netip.Addr) bool {
	return slices.ContainsFunc(c.plan.Ports(), func(p *plan.ServicePort) bool {
		return slices.ContainsFunc(slices.Concat(p.Cluster, p.Local), func(ep *tracker.Endpoint) bool { return !ep.Elsewhere && ep.Addr.Addr() == addr })
	})
}

// After partial syncs, every packet ends as in layout classic, but for packets of endpoints elsewhere to themselves.
func TestVerdictsOfClassic(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	packets := 0
	seeds(t, 20, func(t *testing.T, c *cluster) {
		settings := c.settings()
		r, m := loaded(t, settings, nil)
		for range 12 {
			for range 1 + c.rng.IntN(6) {
				c.step()
			}
			r.Update(c.take())
			if err := r.Partial(m); err != nil {
				t.Fatal(err)
			}
			ours, theirs := walk.New(rulesOf(t, m), c.world()), walk.New(classic(t, settings, c), c.world())
			for _, p := range c.packets(nil, 100) {
				packets++
				want, have := walked(t, theirs, &p), walked(t, ours, &p)
				if from := p.Source.Addr(); !c.onNode(from) {
					want, have = walktest.WithoutHairpin(want, from), walktest.WithoutHairpin(have, from)
				}
				if !want.Equal(have) {
					t.Fatalf("%s:\n%s, not\n%s\nsettings %+v", &p, have, want, settings)
				}
			}
		}
	})
	t.Logf("%d packets", packets)
}
