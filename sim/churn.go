package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/scenarios"
)

// Of a mixed churn's events, these shares change endpoints and readiness; the
// rest deletes and creates Services. Pods come and go far more often than
// Services do.
const mixedEndpoints, mixedReadiness = 0.7, 0.2

// Churn plans an open-loop stream of single changes. In a dual-stack cluster one
// event changes the slices of both families, due together.
//
// endpoints: a pod of a Service is replaced by a new, ready one. readiness: a
// pod that does not terminate becomes not ready, or ready again. services: by
// turns a Service goes and a new one like it comes, each with its slices. mixed: all of
// these. Only Services that proxies serve are chosen.
func (w *World) Churn(step scenarios.Churn) (Trace, error) {
	if step.Rate <= 0 || step.Events < 0 {
		return nil, fmt.Errorf("churn: %d events at a rate of %g, which must be above 0", step.Events, step.Rate)
	}
	dues, err := arrivals(step, w.random)
	if err != nil {
		return nil, fmt.Errorf("churn: %w", err)
	}
	t := make(Trace, 0, step.Events*len(w.families))
	var owed *workload // it has gone, and none has come for it
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
			err = fmt.Errorf("unknown kind %q, one of endpoints, readiness, services, mixed is allowed", step.Kind)
		}
		if err != nil {
			return nil, fmt.Errorf("churn: event %d of %d: %w", i+1, step.Events, err)
		}
		w.releaseLeaving()
	}
	return w.finish(t), nil
}

// React plans isolated changes, a Trace each, all due at its start: by turns a ready endpoint of a Service is removed, and
// a new one added to that Service. Services that keep endpoints are preferred.
func (w *World) React(step scenarios.React) ([]Trace, error) {
	traces := make([]Trace, 0, step.Count)
	var short *workload // it lacks the endpoint that was removed
	for i := range step.Count {
		var t Trace
		var err error
		if short == nil {
			short, err = w.removeEndpoint(&t)
		} else {
			err = w.addEndpoint(short, &t)
			short = nil
		}
		if err != nil {
			return nil, fmt.Errorf("react: change %d of %d: %w", i+1, step.Count, err)
		}
		traces = append(traces, w.finish(t))
	}
	return traces, nil
}

func (w *World) removeEndpoint(t *Trace) (*workload, error) {
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
		return nil, errNoService
	}
	i := w.random.IntN(l.size())
	for !ready(l.endpoint(i)) {
		i = (i + 1) % l.size()
	}
	t.addSlices(0, w.pack(l, edit{drop: map[string]bool{podKey(l.endpoint(i)): true}}))
	return l, nil
}

func (w *World) addEndpoint(l *workload, t *Trace) error {
	p, err := w.newPod(l, w.conditions.ready)
	if err != nil {
		return fmt.Errorf("service %s/%s: %w", l.service.Namespace, l.service.Name, err)
	}
	t.addSlices(0, w.pack(l, edit{add: []pod{p}}))
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

// arrivals are the due times of a churn.
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
		return nil, fmt.Errorf("unknown arrivals %q, one of uniform, poisson is allowed", step.Arrivals)
	}
	return dues, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (w *World) replaceEndpoint(due time.Duration, t *Trace) error {
	l := w.anyWorkload(func(l *workload) bool { return l.proxied() && l.size() > 0 })
	if l == nil {
		return errNoService
	}
	old := l.endpoint(w.random.IntN(l.size()))
	p, err := w.newPod(l, w.conditions.ready)
	if err != nil {
		return fmt.Errorf("service %s/%s: %w", l.service.Namespace, l.service.Name, err)
	}
	t.addSlices(due, w.pack(l, edit{drop: map[string]bool{podKey(old): true}, add: []pod{p}}))
	return nil
}

func (w *World) flipReadiness(due time.Duration, t *Trace) error {
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
		return errNoService
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
	t.addSlices(due, w.pack(l, edit{set: map[string]discoveryv1.EndpointConditions{podKey(e): next}}))
	return nil
}

// turnService deletes a Service, or creates the one that is owed for it: of the
// same kind, protocol, policies and first number of endpoints, so that shares
// stay what they were.
func (w *World) turnService(due time.Duration, owed *workload, t *Trace) (*workload, error) {
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
	t.addWorkload(due, Add, l)
	return nil, nil
}

// endpoint is a workload's i-th endpoint, in its first family.
func (l *workload) endpoint(i int) *discoveryv1.Endpoint {
	for _, s := range l.groups[0].slices {
		if i < len(s.Endpoints) {
			return &s.Endpoints[i]
		}
		i -= len(s.Endpoints)
	}
	panic("sim: endpoint index out of range")
}

// holds reads a condition; unset is what the API says for it.
func holds(condition *bool, unset bool) bool {
	if condition == nil {
		return unset
	}
	return *condition
}
