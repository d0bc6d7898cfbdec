package bench

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/pass"
	"synclab/bench/step"
	"synclab/bench/traffic/flow"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/world"
)

// InputError reports that a scenario cannot answer its question with the given objects. Nothing was started.
type InputError struct{ Err error }

func (e *InputError) Error() string { return e.Err.Error() }
func (e *InputError) Unwrap() error { return e.Err }

// howToDump is the command that dumps everything that a scenario may need.
const howToDump = "kubectl get svc,endpointslices,nodes -A -o yaml"

// fitter fits a scenario to given objects.
type fitter struct {
	scenario *scenarios.Scenario
	objects  *sim.Objects
	shape    scenarios.Shape // of the objects
	families []corev1.IPFamily
	watches  bool // packets may have to show what a subject does
	left     []remark
	flows    bool        // traffic was left out
	probes   bool        // a probe was left out
	wanted   map[int]int // what steps that were made smaller asked for
}

// remark is on a step that was left out or made smaller.
type remark struct {
	step int // from 0
	text string
}

// fitSteps leaves out the steps of a scenario that the objects do not allow: they become empty, so that all others keep
// their numbers. Some steps become smaller instead. It returns a remark on each of them. If what remains does not
// answer the scenario's question, it returns an InputError. watches: packets may have to show what a subject does.
func fitSteps(s *scenarios.Scenario, o *sim.Objects, watches bool) ([]string, error) {
	f := &fitter{watches: watches, wanted: map[int]int{}, scenario: s, objects: o, shape: world.WorldOf(o, s.Seed).Shape(), families: sim.FamiliesOf(o)}
	s.Steps = slices.Clone(s.Steps)
	for i := range s.Steps {
		if why := f.lacks(s.Steps[i]); why != "" {
			f.leaveOut(i, why)
		}
	}
	for f.replanned() {
	}
	slices.SortStableFunc(f.left, func(a, b remark) int { return a.step - b.step })
	var left []string
	for _, r := range f.left {
		left = append(left, r.text)
	}
	return left, f.answers(left)
}

// withoutSizes returns a scenario without sweeps and targets of the cluster's shape: given objects have one. The pod network
// is the lab's.
func withoutSizes(s scenarios.Scenario) (scenarios.Scenario, []string) {
	var left []string
	s.Sweep = slices.DeleteFunc(slices.Clone(s.Sweep), func(axis scenarios.Axis) bool {
		ofShape := strings.HasPrefix(axis.Field, "shape.") && axis.Field != "shape.podNetwork"
		if ofShape {
			left = append(left, fmt.Sprintf("left out: sweep of %s: the input has one shape", axis.Field))
		}
		return ofShape
	})
	if len(s.Targets) > 0 {
		s.Targets, left = nil, append(left, "left out: targets: they are for generated clusters")
	}
	return s, left
}

// leaveOut makes a step empty, and remarks on it.
func (f *fitter) leaveOut(i int, why string) {
	f.left = append(f.left, remark{i, fmt.Sprintf("left out: step %d, %s: %s", i+1, f.scenario.Steps[i].Kind(), why)})
	f.flows, f.probes = f.flows || f.scenario.Steps[i].Traffic != nil, f.probes || f.scenario.Steps[i].Probe != nil
	f.scenario.Steps[i] = scenarios.Step{}
}

// lacks returns why the objects do not allow a step; empty: they do, or planning the step will tell.
func (f *fitter) lacks(s scenarios.Step) string {
	switch need := step.Kinds[s.Kind()].Needs; {
	case need == step.Endpoints && !f.served(corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP):
		return "no Service with a cluster IP has ready endpoints"
	case s.Traffic != nil && s.Traffic.Stop && f.flows:
		return "no stream runs"
	case need != step.Packets || s.Traffic != nil && s.Traffic.Stop:
		return ""
	case !f.served(corev1.ProtocolTCP, corev1.ProtocolUDP):
		return "no TCP or UDP Service with a cluster IP has ready endpoints"
	case !flow.Sends(s):
		return ""
	}
	if err := flow.HasRoom(f.shape, f.objects, f.families, f.watches); err != nil {
		return err.Error()
	}
	return ""
}

// served reports whether a Service of one of the protocols has a cluster IP and ready endpoints.
func (f *fitter) served(protocols ...corev1.Protocol) bool {
	return slices.ContainsFunc(f.families, func(family corev1.IPFamily) bool {
		return slices.ContainsFunc(protocols, func(p corev1.Protocol) bool { return pass.Served(f.objects, family, p) })
	})
}

// replanned plans the changes of all steps in turn, as a repetition does, without making them. A step that cannot be planned
// is left out or made smaller. Then replanned reports true, and all steps must be planned again.
func (f *fitter) replanned() bool {
	w := world.WorldOf(f.objects, f.scenario.Seed)
	for i := range f.scenario.Steps {
		s := &f.scenario.Steps[i]
		var err error
		switch kind := step.Kinds[s.Kind()]; {
		case kind.Fit != nil:
			err = kind.Fit(w, s)
		default:
			_, err = w.Plan(s)
		}
		if err == nil {
			continue
		}
		var few *world.TooFewError
		if !errors.As(err, &few) || few.Have == 0 {
			f.leaveOut(i, strings.TrimPrefix(err.Error(), s.Kind()+": "))
			return true
		}
		f.shrink(i, few)
		return true
	}
	return false
}

// shrink makes a step smaller, and remarks on it. A smaller step draws other random numbers, so it may shrink again.
func (f *fitter) shrink(i int, few *world.TooFewError) {
	f.wanted[i] = cmp.Or(f.wanted[i], few.Wanted)
	f.left = slices.DeleteFunc(f.left, func(r remark) bool { return r.step == i })
	s := &f.scenario.Steps[i]
	less, ok := s.Smaller(func(int) int { return few.Have })
	if !ok {
		f.leaveOut(i, few.Error())
		return
	}
	f.left = append(f.left, remark{i, fmt.Sprintf("step %d, %s: %d %s instead of %d: there are no more", i+1, s.Kind(), few.Have, few.What, f.wanted[i])})
	*s = less
}

// answers returns an error if nothing is left to measure, or if flows were left out of a scenario that is about flows.
func (f *fitter) answers(remarks []string) error {
	if len(remarks) == 0 {
		return nil
	}
	remain := slices.ContainsFunc(f.scenario.Steps, func(s scenarios.Step) bool {
		role := scenarios.RoleOf(s.Kind())
		return s.Kind() != "" && role != scenarios.Cold && role != scenarios.Wait && (s.Traffic == nil || !s.Traffic.Stop) &&
			(role != scenarios.Look || !f.probes) // a check at the end of a probe is no answer by itself
	})
	if remain && !f.flows {
		return nil
	}
	advice := "use another scenario"
	switch {
	case len(f.objects.Slices) == 0:
		advice = "it has no EndpointSlices; dump them too: " + howToDump
	case !f.served(corev1.ProtocolTCP, corev1.ProtocolUDP):
		advice = "it has no TCP or UDP Service with a cluster IP and ready endpoints; dump the whole cluster: " + howToDump
	}
	return &InputError{fmt.Errorf("scenario %s cannot be run with this input: %s\n  %s", f.scenario.Name, advice, strings.Join(remarks, "\n  "))}
}

// describe says in a line what the input has.
func describe(o *sim.Objects) string {
	ports, endpoints := map[corev1.Protocol]int{}, 0
	for _, svc := range o.Services {
		for i := range svc.Spec.Ports {
			ports[svc.Spec.Ports[i].Protocol]++
		}
	}
	for _, slice := range o.Slices {
		endpoints += len(slice.Endpoints)
	}
	var counts []string
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
		if ports[protocol] > 0 || protocol != corev1.ProtocolSCTP {
			counts = append(counts, fmt.Sprintf("%d %s", ports[protocol], protocol))
		}
	}
	var families []string
	for _, family := range sim.FamiliesOf(o) {
		families = append(families, string(family))
	}
	return fmt.Sprintf("input: %s, ports %s; %s, %s; %s", plural(len(o.Services), "Service"), strings.Join(counts, " and "),
		plural(endpoints, "endpoint"), plural(len(o.Nodes), "Node"), strings.Join(families, " and "))
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
