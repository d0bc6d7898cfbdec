package world

import (
	"fmt"
	"math/rand/v2"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/scenarios"
	"synclab/sim"
)

// Shares of a mixed churn's events that change endpoints and readiness. The rest deletes and creates Services. Pods
// come and go far more often than Services do.
const mixedEndpoints, mixedReadiness = 0.7, 0.2

// Churn plans an open-loop stream of single changes. In a dual-stack cluster one event changes the slices of both
// families, with the same due time.
//
// endpoints: a new, ready pod replaces a pod of a Service. readiness: a pod that does not terminate becomes not ready,
// or ready again. services: in turn, a Service is deleted and a new one like it is created, each with its slices.
// mixed: all of these. Only Services that proxies serve are chosen. With an error, the changes before it are returned.
func (w *World) Churn(step scenarios.Churn) (sim.Trace, error) {
	if step.Rate <= 0 || step.Events < 0 {
		return nil, fmt.Errorf("churn: %d events at rate %g: want events >= 0 and rate > 0", step.Events, step.Rate)
	}
	dues, err := arrivals(step, w.random)
	if err != nil {
		return nil, fmt.Errorf("churn: %w", err)
	}
	t := make(sim.Trace, 0, step.Events*len(w.families))
	var owed *workload // deleted, and not yet replaced
	for i, due := range dues {
		kind := step.Kind
		if kind == "mixed" {
			kind = mixedKind(w.random.Float64())
		}
		switch kind {
		case "", "endpoints":
			err = w.replaceEndpoint(due, &t)
		case "readiness":
			err = w.flipReadiness(due, &t)
		case "services":
			owed, err = w.turnService(due, owed, &t)
		default:
			err = fmt.Errorf("unknown kind %q: want endpoints, readiness, services or mixed", step.Kind)
		}
		if err != nil {
			return w.finish(t), fmt.Errorf("churn: %w", &TooFewError{"changes", step.Events, i, err})
		}
		w.releaseLeaving()
	}
	return w.finish(t), nil
}

// React plans isolated changes, a Trace each, all due at its start. In turn, a ready endpoint of a Service is removed,
// and a new one is added to that Service. Services that keep ready endpoints are preferred. With an error, the changes
// before it are returned, as by Churn.
func (w *World) React(step scenarios.React) ([]sim.Trace, error) {
	traces := make([]sim.Trace, 0, step.Count)
	var short *workload // a Service whose endpoint was removed
	for i := range step.Count {
		var t sim.Trace
		var err error
		if short == nil {
			short, err = w.removeEndpoint(&t)
		} else {
			err = w.addEndpoint(short, &t)
			short = nil
		}
		if err != nil {
			return traces, fmt.Errorf("react: %w", &TooFewError{"changes", step.Count, i, err})
		}
		traces = append(traces, w.finish(t))
	}
	return traces, nil
}

func (w *World) removeEndpoint(t *sim.Trace) (*workload, error) {
	ready := func(e *discoveryv1.Endpoint) bool { return holds(e.Conditions.Ready, true) }
	withReady := func(least int) func(l *workload) bool {
		return func(l *workload) bool {
			n := 0
			for i := 0; l.proxied() && i < l.size() && n < least; i++ {
				if ready(l.endpoint(i)) {
					n++
				}
			}
			return n >= least
		}
	}
	l := w.anyWorkload(withReady(2))
	if l == nil {
		l = w.anyWorkload(withReady(1))
	}
	if l == nil {
		return nil, ErrNothingToChange
	}
	i := w.random.IntN(l.size())
	for !ready(l.endpoint(i)) {
		i = (i + 1) % l.size()
	}
	w.change(l, 0, edit{drop: map[string]bool{w.podKey(l.endpoint(i)): true}}, t)
	return l, nil
}

func (w *World) addEndpoint(l *workload, t *sim.Trace) error {
	p, err := w.newPod(l, w.conditions.ready)
	if err != nil {
		return fmt.Errorf("service %s/%s: %w", l.service.Namespace, l.service.Name, err)
	}
	w.change(l, 0, edit{add: []pod{p}}, t)
	return nil
}

func mixedKind(u float64) string {
	switch {
	case u < mixedEndpoints:
		return "endpoints"
	case u < mixedEndpoints+mixedReadiness:
		return "readiness"
	default:
		return "services"
	}
}

// arrivals returns the due times of a churn.
func arrivals(step scenarios.Churn, random *rand.Rand) ([]time.Duration, error) {
	dues := make([]time.Duration, step.Events)
	switch step.Arrivals {
	case "", "uniform":
		for i := range dues {
			dues[i] = seconds(float64(i) / step.Rate)
		}
	case "poisson":
		at := 0.0
		for i := range dues {
			at += random.ExpFloat64() / step.Rate
			dues[i] = seconds(at)
		}
	default:
		return nil, fmt.Errorf("unknown arrivals %q: want uniform or poisson", step.Arrivals)
	}
	return dues, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (w *World) replaceEndpoint(due time.Duration, t *sim.Trace) error {
	l := w.anyWorkload(func(l *workload) bool { return l.proxied() && l.size() > 0 })
	if l == nil {
		return ErrNothingToChange
	}
	old := l.endpoint(w.random.IntN(l.size()))
	p, err := w.newPod(l, w.conditions.ready)
	if err != nil {
		return fmt.Errorf("service %s/%s: %w", l.service.Namespace, l.service.Name, err)
	}
	w.change(l, due, edit{drop: map[string]bool{w.podKey(old): true}, add: []pod{p}}, t)
	return nil
}

func (w *World) flipReadiness(due time.Duration, t *sim.Trace) error {
	stays := func(e *discoveryv1.Endpoint) bool { return !holds(e.Conditions.Terminating, false) }
	l := w.anyWorkload(func(l *workload) bool {
		if !l.proxied() {
			return false
		}
		for i := range l.size() {
			if stays(l.endpoint(i)) {
				return true
			}
		}
		return false
	})
	if l == nil {
		return ErrNothingToChange
	}
	i := w.random.IntN(l.size())
	for !stays(l.endpoint(i)) {
		i = (i + 1) % l.size()
	}
	e := l.endpoint(i)
	next := w.conditions.ready
	if holds(e.Conditions.Ready, true) {
		next = w.conditions.unready
	}
	w.change(l, due, edit{set: map[string]discoveryv1.EndpointConditions{w.podKey(e): next}}, t)
	return nil
}

// turnService deletes a Service, or creates the replacement of owed: of the same kind, protocol, policies and first
// number of endpoints, so that shares stay the same.
func (w *World) turnService(due time.Duration, owed *workload, t *sim.Trace) (*workload, error) {
	if owed == nil {
		if l := w.anyWorkload((*workload).proxied); l != nil {
			w.deleteService(l, due, t)
			return l, nil
		}
	}
	like := w.nextIndex
	if owed != nil && owed.like >= 0 {
		like = owed.like
	}
	l, err := w.createService(like)
	if err != nil {
		return owed, err
	}
	addWorkload(t, due, sim.Add, l)
	return nil, nil
}

// endpoint returns a workload's i-th endpoint, in its first family.
func (l *workload) endpoint(i int) *discoveryv1.Endpoint {
	for _, s := range l.groups[0].slices {
		if i < len(s.Endpoints) {
			return &s.Endpoints[i]
		}
		i -= len(s.Endpoints)
	}
	panic("sim: endpoint index out of range")
}

// holds returns the value of a condition. unset is the API's meaning of a condition that is not set.
func holds(condition *bool, unset bool) bool {
	if condition == nil {
		return unset
	}
	return *condition
}
