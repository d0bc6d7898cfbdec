package conform

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/proxier/iptables"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/world"
)

// parts is the number of comparisons during the changes of one scenario step.
const parts = 3

// ScenarioBatch returns the batch of a scenario's cluster, compared before and during each step. It omits time, probes,
// faults and restarts. cfg is the configuration of a run of the scenario.
func ScenarioBatch(s *scenarios.Scenario, cfg *v1alpha1.KubeProxyConfiguration, variant iptables.Variant) (*Batch, error) {
	world, err := world.NewWorld(s.Shape, s.Seed)
	if err != nil {
		return nil, fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	if len(s.Steps) == 0 || s.Steps[0].Create == nil || s.Steps[0].Create.Rate == 0 {
		if _, err := world.Create(scenarios.Create{}); err != nil {
			return nil, fmt.Errorf("scenario %s: %w", s.Name, err)
		}
	}
	var families []corev1.IPFamily
	for _, f := range s.Shape.Families {
		families = append(families, corev1.IPFamily(f))
	}
	b := &Batch{
		Name:    fmt.Sprintf("scenario %s, iptables-%s", s.Name, variant),
		Setting: Setting{Variant: variant, Families: families, Config: cfg},
		Again:   Again{Args: []string{s.Name}, Flags: [][2]string{{"variant", string(variant)}, {"random"}, {"filename"}, {"then"}}},
	}
	b.Next = following(Step{What: "at first", Objects: world.Objects()}, func(i int) (string, sim.Trace, bool, error) {
		if i == len(s.Steps) {
			return "", nil, false, nil
		}
		t, err := world.Plan(&s.Steps[i])
		return fmt.Sprintf("step %d", i+1), t, true, err
	})
	return b, nil
}

// following returns the steps of a batch: first, and then the changes of each trace in parts.
func following(first Step, next func(i int) (what string, t sim.Trace, more bool, err error)) func() (Step, bool, error) {
	pending := []Step{first}
	i := 0
	return func() (Step, bool, error) {
		for len(pending) == 0 {
			what, t, more, err := next(i)
			if err != nil || !more {
				return Step{}, false, err
			}
			i++
			size := max(1, (len(t)+parts-1)/parts)
			n := 0
			for part := range slices.Chunk(t, size) {
				n++
				pending = append(pending, Step{What: fmt.Sprintf("%s, part %d", what, n), Trace: part})
			}
		}
		step := pending[0]
		pending = pending[1:]
		return step, true, nil
	}
}

// The churn of objects from files, after their first state was compared.
const (
	churnEvents = 15
	churnSeed   = 1
)

// ObjectsBatch returns a batch of the objects o, and the states that follow: those of then, or else a little churn, as far
// as the objects have anything to churn.
func ObjectsBatch(name string, o *sim.Objects, then []*sim.Objects, s Setting) *Batch {
	b := &Batch{Name: fmt.Sprintf("%s (%s)", name, s), Setting: s, Again: Again{Flags: [][2]string{{"variant", string(s.Variant)}, {"random"}}}}
	if len(o.Nodes) > 0 {
		b.Node = o.Nodes[0].Name // the feed sorts them
	}
	if len(then) > 0 {
		steps := []Step{{What: "at first", Objects: o}}
		for i, next := range then {
			step := Step{What: "then", Objects: next, Later: true}
			if len(then) > 1 {
				step.What = fmt.Sprintf("then, state %d", i+1)
			}
			steps = append(steps, step)
		}
		b.Next = func() (Step, bool, error) {
			if len(steps) == 0 {
				return Step{}, false, nil
			}
			step := steps[0]
			steps = steps[1:]
			return step, true, nil
		}
		return b
	}
	kinds := []string{"readiness", "endpoints"} // kinds of churn; no "services" churn, because there may be few Services
	var w *world.World
	b.Next = following(Step{What: "at first", Objects: o}, func(i int) (string, sim.Trace, bool, error) {
		if i == len(kinds) {
			return "", nil, false, nil
		}
		if w == nil {
			w = world.WorldOf(o, churnSeed)
		}
		t, err := w.Churn(scenarios.Churn{Rate: 1, Events: churnEvents, Kind: kinds[i]})
		if errors.Is(err, world.ErrNothingToChange) {
			err = nil
		}
		return "churn of " + kinds[i], t, true, err
	})
	return b
}
