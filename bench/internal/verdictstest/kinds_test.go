package verdictstest

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"synclab/bench/lab/netns"
	"synclab/bench/verify/conform"
	"synclab/internal/seedstest"
	"synclab/proxier"
	"synclab/sim"
	"synclab/sim/api"
	"synclab/sim/random"
)

func TestMain(m *testing.M) { os.Exit(netns.TestMain(m)) }

// tally counts the comparisons, and prints its progress.
type tally struct {
	t                                      *testing.T
	clusters, states, packets, differences int
	excused                                map[string]int
}

func (c *tally) String() string {
	return fmt.Sprintf("%d clusters, %d states, %d packets, %d differences, explained %v", c.clusters, c.states, c.packets, c.differences, c.excused)
}

func (c *tally) begun() {
	c.clusters++
	if c.clusters%50 == 0 {
		fmt.Fprintf(os.Stderr, "%s: %s\n", c.t.Name(), c)
	}
}

// compare compares the verdicts on packets of both families.
func (c *tally) compare(s *State, what string, packetSeed uint64, rulesets ...Ruleset) {
	c.t.Helper()
	c.states++
	world, err := s.World()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, family := range both {
		packets, err := s.Packets(family, packetSeed)
		if err != nil {
			c.t.Fatal(err)
		}
		found, err := Compare(family, world, packets, rulesets...)
		if err != nil {
			c.t.Fatalf("%s: %v", what, err)
		}
		c.packets += len(packets)
		c.differences += len(found)
		found = slices.DeleteFunc(found, func(d Difference) bool {
			ofMode := strings.HasPrefix(d.Subjects[1], string(Nftables)) && s.hairpinElsewhere(&d.Packet, d.Verdicts[0], d.Verdicts[1])
			if ofMode {
				c.excused[modeHairpin]++
			}
			return ofMode
		})
		if len(found) > 0 {
			c.t.Errorf("%s (%s): %d of %d packets differ:\n%s", what, s.Setting, len(found), len(packets), Describe(found))
		}
	}
}

// All layouts and backends give every packet the same verdict, after full and partial syncs, but for packets of endpoints
// on other nodes to themselves.
func TestKinds(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	count := &tally{t: t, excused: map[string]int{}}
	for _, seed := range seedstest.Several(t, 12) {
		if t.Failed() {
			break
		}
		compareKinds(t, count, seed)
	}
	t.Log(count)
}

const steps = 3 // number of changes to each cluster

func compareKinds(t *testing.T, count *tally, seed uint64) {
	t.Helper()
	ctx := t.Context()
	setting := conform.DrawSetting(seed, conform.Constraint{})
	random := random.New(random.Options{Seed: seed, Families: setting.Families})
	s := &State{Setting: setting, Node: "node-0", Machine: proxier.Machine{Accounting: seed%2 == 0}, Objects: random.Objects()}
	if seed%3 == 0 { // sometimes the node has external and load balancer addresses of Services
		for _, text := range []string{"203.0.113.1", "203.0.113.4", "198.18.0.5", "2001:db8:113::2", "2001:db8:18::7"} {
			s.Held = append(s.Held, netip.MustParseAddr(text))
		}
	}
	cluster := api.NewCluster(clock.RealClock{})
	defer cluster.Stop()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("seed %d (%s): %v", seed, setting, err)
		}
	}
	must(cluster.Load(ctx, s.Objects))
	var followers []*Follower
	for _, kind := range Kinds {
		f, err := Follow(ctx, s, kind, cluster)
		must(err)
		defer f.Stop()
		followers = append(followers, f)
	}
	count.begun()
	for step := range steps + 1 {
		if step > 0 {
			must(happen(ctx, cluster, random.Next()))
			s.Objects = random.Objects()
		}
		var rulesets []Ruleset
		for _, kind := range Kinds {
			r, err := Render(ctx, s, kind)
			must(err)
			rulesets = append(rulesets, r)
		}
		for _, f := range followers {
			r, err := f.Rules(ctx)
			must(err)
			rulesets = append(rulesets, r)
		}
		count.compare(s, fmt.Sprintf("seed %d, step %d", seed, step), seed, rulesets...)
	}
}

func happen(ctx context.Context, cluster *api.Cluster, t sim.Trace) error {
	for _, change := range t {
		if err := cluster.Apply(ctx, change); err != nil {
			return err
		}
	}
	return nil
}
