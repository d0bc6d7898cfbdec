package virtualtest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/random"
	"synclab/sim/world"
)

// enqueue appends Actions in the order of their times.
func (s *script) enqueue(all []timed) {
	slices.SortStableFunc(all, func(a, b timed) int { return cmp.Compare(a.at, b.at) })
	last := time.Duration(0)
	for _, t := range all {
		t.After, last = t.at-last, t.at
		s.queue = append(s.queue, t.Action)
	}
}

// source is a changing cluster.
type source interface {
	// first returns the initial objects; it is called once.
	first() (*sim.Objects, error)
	// changes returns changes for the given duration and rate a second.
	changes(rng *rand.Rand, length time.Duration, rate float64) (sim.Trace, error)
	// deletions returns the deletions of all objects except Nodes.
	deletions() sim.Trace
}

func newSource(s Setting) (source, error) {
	if !s.World {
		return &anyObjects{random.New(random.Options{Seed: s.Seed, Families: s.Families, Services: s.Services})}, nil
	}
	families := make([]string, len(s.Families))
	for i, f := range s.Families {
		families[i] = string(f)
	}
	w, err := world.NewWorld(scenarios.Shape{
		Services: s.Services, Namespaces: 3, Nodes: worldNodes, Zones: 3, Ports: 1, Families: families,
		Endpoints: scenarios.Endpoints{Distribution: "uniform", Count: 5, Min: 0, Max: 10},
		Types:     map[string]float64{"NodePort": 0.2, "LoadBalancer": 0.2, "Headless": 0.05, "ExternalName": 0.02},
		Protocols: map[string]float64{"UDP": 0.4, "SCTP": 0.05}, ExternalIPs: 0.2, SourceRanges: 0.5, Affinity: 0.2,
		InternalLocal: 0.1, ExternalLocal: 0.3, WithoutEndpoint: 0.05, NotReady: 0.1, Terminating: 0.1, TopologyHints: 0.2,
	}, s.Seed)
	if err != nil {
		return nil, err
	}
	return &worldSource{w, worldNodes}, nil
}

// anyObjects is a cluster of api.Cluster.
type anyObjects struct{ *random.Cluster }

func (c *anyObjects) first() (*sim.Objects, error) { return c.Objects(), nil }

// meanChanges is the mean number of changes of Cluster's Next.
const meanChanges = 4

func (c *anyObjects) changes(rng *rand.Rand, length time.Duration, rate float64) (sim.Trace, error) {
	var t sim.Trace
	mean := meanChanges / rate * float64(time.Second)
	for at := time.Duration(rng.ExpFloat64() * mean); at < length; at += time.Duration(rng.ExpFloat64() * mean) {
		due := at
		for _, ch := range c.Next() {
			ch.Due = due
			t = append(t, ch)
			due += time.Duration(rng.Int64N(int64(50*time.Millisecond))) + time.Millisecond
		}
	}
	return t, nil
}

func (c *anyObjects) deletions() sim.Trace { return deletions(c.Objects()) }

func deletions(o *sim.Objects) sim.Trace {
	var t sim.Trace
	for _, s := range o.Services {
		t = append(t, sim.Change{Op: sim.Delete, Object: s.DeepCopy()})
	}
	for _, s := range o.Slices {
		t = append(t, sim.Change{Op: sim.Delete, Object: s.DeepCopy()})
	}
	return t
}

// worldSource is a cluster of world.World.
type worldSource struct {
	*world.World
	nodes int
}

const (
	worldNodes = 12
	// leastNodes Nodes are never lost, so that pods have a node.
	leastNodes = 4
)

func (w *worldSource) first() (*sim.Objects, error) {
	_, err := w.Create(scenarios.Create{})
	return w.Objects(), err
}

// changes concatenates steps of the World.
func (w *worldSource) changes(rng *rand.Rand, length time.Duration, rate float64) (sim.Trace, error) {
	var t sim.Trace
	for at := time.Duration(0); at < length; {
		step, err := w.step(rng, rate)
		if err != nil {
			return nil, err
		}
		took := time.Duration(0)
		for _, ch := range step {
			took = max(took, ch.Due)
			ch.Due += at
			t = append(t, ch)
		}
		at += took + time.Duration(rng.Int64N(int64(time.Second)))
	}
	return t, nil
}

func (w *worldSource) step(rng *rand.Rand, rate float64) (sim.Trace, error) {
	switch draw := rng.IntN(100); {
	case w.served() < leastServed: // only new Services replace the endpoints of lost Nodes
		return w.Churn(scenarios.Churn{Rate: 1 + rate, Events: 20, Kind: "services", Arrivals: "poisson"})
	case draw < 15:
		return w.Rollout(scenarios.Rollout{Services: 1 + rng.IntN(3), Surge: 0.25 + rng.Float64()/2, Interval: time.Duration(1+rng.IntN(10)) * time.Second})
	case draw < 30:
		return w.Scale(scenarios.Scale{To: []int{0, 1, 5, 30}[rng.IntN(4)], Rate: 1 + rng.Float64()*20})
	case draw < 32 && w.nodes > leastNodes:
		w.nodes--
		return w.NodeLoss(scenarios.NodeLoss{Nodes: 1})
	case draw < 36:
		return w.rezone(rng)
	}
	return w.Churn(scenarios.Churn{Rate: rate, Events: 1 + rng.IntN(30), Kind: "mixed", Arrivals: "poisson"})
}

// leastServed is the fewest Services with endpoints that the steps need.
const leastServed = 10

// served counts the Services with endpoints that do not terminate.
func (w *worldSource) served() int {
	served := map[string]bool{}
	for _, s := range w.Objects().Slices {
		if _, headless := s.Labels[corev1.IsHeadlessService]; headless {
			continue
		}
		for _, e := range s.Endpoints {
			if e.Conditions.Terminating == nil || !*e.Conditions.Terminating {
				served[s.Namespace+"/"+s.Labels[discoveryv1.LabelServiceName]] = true
			}
		}
	}
	return len(served)
}

// rezone moves the proxier's node to another zone for a while.
func (w *worldSource) rezone(rng *rand.Rand) (sim.Trace, error) {
	nodes := w.Objects().Nodes
	i := slices.IndexFunc(nodes, func(n *corev1.Node) bool { return n.Name == nodeName })
	if i < 0 {
		return nil, fmt.Errorf("node %s is not in the cluster", nodeName)
	}
	elsewhere := nodes[i].DeepCopy()
	elsewhere.Labels[corev1.LabelTopologyZone] = nodes[(i+1)%len(nodes)].Labels[corev1.LabelTopologyZone]
	return sim.Trace{
		{Op: sim.Update, Object: elsewhere},
		{Op: sim.Update, Object: nodes[i], Due: time.Duration(1+rng.IntN(60)) * time.Second},
	}, nil
}

func (w *worldSource) deletions() sim.Trace { return deletions(w.Objects()) }

// state has the cluster's current objects, for the checks.
type state struct {
	services map[string]*corev1.Service
	slices   map[string]*discoveryv1.EndpointSlice
	node     *corev1.Node // the proxier's node
	nodes    map[string]bool
}

// apply adapts a change to the state: a shortened script may add existing objects and change missing ones. It returns
// the adapted change, and false if there is nothing to do.
func (s *state) apply(c sim.Change) (sim.Change, bool) {
	switch o := c.Object.(type) {
	case *corev1.Service:
		return fit(s.services, o.Namespace+"/"+o.Name, o, c)
	case *discoveryv1.EndpointSlice:
		return fit(s.slices, o.Namespace+"/"+o.Name, o, c)
	case *corev1.Node:
		if o.Name == nodeName {
			if c.Op == sim.Delete {
				return c, false
			}
			s.node = o
		}
		c, any := fit(s.nodes, o.Name, true, c)
		return c, any
	}
	return c, false
}

func fit[T any](all map[string]T, key string, object T, c sim.Change) (sim.Change, bool) {
	_, there := all[key]
	switch {
	case c.Op == sim.Delete && !there:
		return c, false
	case c.Op == sim.Delete:
		delete(all, key)
		return c, true
	case there:
		c.Op = sim.Update
	default:
		c.Op = sim.Add
	}
	all[key] = object
	return c, true
}

func newState(o *sim.Objects) *state {
	s := &state{services: map[string]*corev1.Service{}, slices: map[string]*discoveryv1.EndpointSlice{}, nodes: map[string]bool{}}
	for _, svc := range o.Services {
		s.services[svc.Namespace+"/"+svc.Name] = svc
	}
	for _, slice := range o.Slices {
		s.slices[slice.Namespace+"/"+slice.Name] = slice
	}
	for _, node := range o.Nodes {
		s.nodes[node.Name] = true
		if node.Name == nodeName {
			s.node = node
		}
	}
	return s
}

// objects returns the state's objects, sorted.
func (s *state) objects() ([]*corev1.Service, []*discoveryv1.EndpointSlice) {
	return sorted(s.services), sorted(s.slices)
}

func sorted[T any](all map[string]T) []T {
	keys := make([]string, 0, len(all))
	for key := range all {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	list := make([]T, len(keys))
	for i, key := range keys {
		list[i] = all[key]
	}
	return list
}
