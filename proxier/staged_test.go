package proxier

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/netns"
	"synclab/proxier/iptables"
	"synclab/proxier/walk"
	"synclab/sim/seeds"
)

// transitions of each variant and layout are walked through, each with a crash at every one of its points.
var transitionsFlag = flag.Int("transitions", 8, "random transitions whose every state is walked through, of each variant and layout")

// staged is a proxier on a model whose every intermediate state is looked at.
type staged struct {
	t       *testing.T
	cluster *randomCluster
	model   *iptables.Model
	engine  *engine
	options func(*Options)
	world   walk.World
	walked  map[string][]walk.Verdict // by the text of the tables, for the packets of one transition
}

// verdicts of all packets on a state of the tables.
func (s *staged) verdicts(m *iptables.Model, packets []walk.Packet) []walk.Verdict {
	s.t.Helper()
	var text bytes.Buffer
	if err := m.Save(&text); err != nil {
		s.t.Fatal(err)
	}
	if known := s.walked[text.String()]; known != nil {
		return known
	}
	rules, err := walk.ParseIptables(s.cluster.family, text.Bytes())
	if err != nil {
		s.t.Fatal(err)
	}
	walker := walk.New(rules, s.world)
	verdicts := make([]walk.Verdict, len(packets))
	for i := range packets {
		if verdicts[i], err = walker.Walk(&packets[i]); err != nil {
			s.t.Fatal(err)
		}
		verdicts[i].Outcomes = slices.Clone(verdicts[i].Outcomes)
	}
	s.walked[text.String()] = verdicts
	return verdicts
}

// watched syncs and gives every state of the tables on the way, and the last. after: so many tables are written, then
// the restore is killed; negative: it is not.
func (s *staged) watched(e *engine, m *iptables.Model, after int) (states []*iptables.Model) {
	s.t.Helper()
	m.Committed = func() error {
		states = append(states, m.Clone())
		if len(states) == after {
			return errors.New("killed")
		}
		return nil
	}
	err := e.sync(s.t.Context())
	m.Committed = nil
	if killed := after >= 0 && len(states) >= after; (err != nil) != killed {
		s.t.Fatalf("after %d of %d tables: %v", len(states), after, err)
	}
	return append(states, m.Clone())
}

// allowed says that each packet meets, in each state, what it met before or what it will meet.
func (s *staged) allowed(what string, states []*iptables.Model, packets []walk.Packet, old, now []walk.Verdict) {
	s.t.Helper()
	for n, m := range states {
		for i, v := range s.verdicts(m, packets) {
			if !v.Equal(old[i]) && !v.Equal(now[i]) {
				var before, between, after bytes.Buffer
				_, _, _ = s.model.Save(&before), m.Save(&between), states[len(states)-1].Save(&after)
				s.t.Fatalf("%s, state %d of %d: %s\n\tbefore  %s\n\tbetween %s\n\tafter   %s\nbetween:\n%s\nafter:\n%s",
					what, n+1, len(states), &packets[i], old[i], v, now[i], between.String(), after.String())
			}
		}
	}
}

// transition changes the cluster, syncs, looks at every state, and at what a new proxier does that finds it.
func (s *staged) transition(n int, rng *rand.Rand) {
	start := s.model.Clone()
	frontends := walk.PlannedFrontends(s.engine.plan.Ports())
	for range 1 + rng.IntN(12) {
		s.cluster.step(s.engine)
	}
	killed := -1
	if rng.IntN(3) == 0 {
		killed = 1 + rng.IntN(4)
	}
	states := s.watched(s.engine, s.model, killed)
	frontends = append(frontends, walk.PlannedFrontends(s.engine.plan.Ports())...)
	population := walk.Population{Frontends: frontends, World: s.world, Least: 1, Seed: rng.Uint64()}
	packets := population.Packets(s.cluster.family == corev1.IPv4Protocol)
	if killed >= 0 { // the same proxier goes on, without any change
		states = append(states, s.watched(s.engine, s.model, -1)...)
	}
	s.walked = map[string][]walk.Verdict{}
	old, now := s.verdicts(start, packets), s.verdicts(s.model, packets)
	s.allowed(fmt.Sprintf("transition %d", n), states, packets, old, now)
	want := saved(s.t, s.model)
	for i, crashed := range append([]*iptables.Model{start}, states...) {
		m := crashed.Clone()
		next := testEngine(s.t, s.cluster.family, m, s.options)
		s.cluster.tell(next)
		s.allowed(fmt.Sprintf("transition %d, a new proxier after state %d", n, i), s.watched(next, m, -1), packets, old, now)
		if got := saved(s.t, m); got != want {
			s.t.Fatalf("transition %d: a new proxier after state %d leaves\n%s\nwant\n%s", n, i, got, want)
		}
	}
}

// No packet meets rules that are neither those before a sync nor those after it, whichever table was written last, and
// wherever a proxier was killed and another one went on.
func TestNoPacketInBetween(t *testing.T) {
	for _, variant := range []iptables.Variant{iptables.Legacy, iptables.Nft} {
		for _, layout := range iptables.Layouts {
			t.Run(fmt.Sprintf("%s/%s", variant, layout), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(seeds.Of(t), 3))
				s := &staged{
					t: t, cluster: newRandomCluster(rng.Uint64(), corev1.IPv4Protocol), model: iptables.NewModel(corev1.IPv4Protocol),
					world: walk.World{Local: []netip.Addr{netip.MustParseAddr("172.18.0.2")}},
				}
				s.cluster.sole = true
				s.options = func(o *Options) {
					o.Variant, o.Layout, o.NodeIPs = variant, layout, s.world.Local
					o.Batch = 1 + rng.IntN(30)
				}
				s.engine = testEngine(t, corev1.IPv4Protocol, s.model, s.options)
				for range 20 {
					s.cluster.step(s.engine)
				}
				s.watched(s.engine, s.model, -1)
				for n := range *transitionsFlag {
					s.transition(n, rng)
				}
			})
		}
	}
}

// Over the rules of a proxier that was killed, a new one goes on in batches too, and leaves what it would have made
// alone, in the kernel as on the model.
func TestRestartInBatches(t *testing.T) {
	for _, layout := range iptables.Layouts {
		t.Run(string(layout), func(t *testing.T) {
			netns.Fresh(t)
			needsLargeRestores(t, iptables.Nft)
			c := newRandomCluster(seeds.Of(t), corev1.IPv4Protocol)
			start := func() *engine {
				host, err := iptables.NewHost(iptables.RestorerOptions{Variant: iptables.Nft, Family: c.family})
				if err != nil {
					t.Skip(err)
				}
				return testEngine(t, c.family, host, func(o *Options) { o.Variant, o.Layout, o.Batch = iptables.Nft, layout, 30 })
			}
			e := start()
			for range 4 {
				for range 60 {
					c.step(e)
				}
				if err := e.sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				next := start()
				c.tell(next)
				for range 20 {
					c.step(next)
				}
				runs := 0
				next.opts.OnSync = func(s Sync) { runs = len(s.Runs) }
				if err := next.sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				if runs < 3 {
					t.Errorf("%d restores: not in batches", runs)
				}
				want := iptables.NewModel(c.family)
				alone := testEngine(t, c.family, want, func(o *Options) { o.Layout = layout })
				c.tell(alone)
				if err := alone.sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(strings.Split(saved(t, want), "\n"), strings.Split(kernelSaved(t, iptables.Nft, c.family), "\n")); diff != "" {
					t.Fatalf("(-alone +kernel):\n%s", diff)
				}
				e = next
			}
		})
	}
}
