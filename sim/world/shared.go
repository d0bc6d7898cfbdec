package world

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"synclab/sim"
)

// sharedPods are the pods that the Services of a namespace share. Each place has one pod, or two during a rollout, or none
// after a loss. A Service has the pods of some places.
type sharedPods struct {
	owner  *workload // the Deployment, which has all places
	places [][]pod
	users  []*workload // Services, in the order of creation
	// In the trace of the present step: when the controller can write the next slice, and where the last write of each slice is.
	free   time.Duration
	writes map[string]int
}

// share gives a new Service n places of its namespace's shared pods, and returns the pods there.
func (w *World) share(l *workload, n int) ([]pod, error) {
	shared := w.shared[l.service.Namespace]
	if shared == nil {
		shared = &sharedPods{places: make([][]pod, w.shape.SharedPods), writes: map[string]int{}}
		shared.owner = &workload{service: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "shared", Namespace: l.service.Namespace}}, shared: shared}
		for _, g := range l.groups {
			shared.owner.groups = append(shared.owner.groups, sliceGroup{family: g.family})
		}
		for i := range shared.places {
			p, err := w.newPod(shared.owner, w.initialConditions(w.podCount))
			if err != nil {
				return nil, fmt.Errorf("shared pods of namespace %s: %w", l.service.Namespace, err)
			}
			shared.places[i] = []pod{p}
			shared.owner.places = append(shared.owner.places, i)
		}
		w.shared[l.service.Namespace] = shared
	}
	l.shared = shared
	shared.users = append(shared.users, l)
	var pods []pod
	for k := range min(n, w.shape.SharedPods) {
		place := (l.like*n + k) % w.shape.SharedPods
		l.places = append(l.places, place)
		pods = append(pods, shared.places[place]...)
	}
	return pods, nil
}

// change plans an edit of a Service's pods. If these are shared, all Services change that have them.
func (w *World) change(l *workload, due time.Duration, e edit, t *sim.Trace) {
	if l.shared == nil {
		addSlices(t, due, w.pack(l, e))
		return
	}
	places := w.place(l, e)
	for _, user := range l.shared.users {
		own := edit{drop: e.drop, set: e.set}
		for i, p := range e.add {
			if slices.Contains(user.places, places[i]) {
				own.add = append(own.add, p)
			}
		}
		for _, c := range w.pack(user, own) {
			l.shared.write(due, c, t)
		}
	}
}

// place applies an edit to shared pods, and returns the place of each added one: the emptiest that the Service has.
func (w *World) place(l *workload, e edit) []int {
	shared := l.shared
	for i, pods := range shared.places {
		kept := pods[:0]
		for _, p := range pods {
			if e.drop[p.name] {
				for _, address := range p.addresses {
					w.gone = append(w.gone, &discoveryv1.Endpoint{Addresses: []string{address}, NodeName: &p.host.name})
				}
				continue
			}
			if conditions, ok := e.set[p.name]; ok {
				p.conditions = conditions
			}
			kept = append(kept, p)
		}
		shared.places[i] = kept
	}
	if len(l.places) == 0 && len(e.add) > 0 { // of a Service without endpoints
		l.places = []int{len(shared.places)}
		shared.owner.places = append(shared.owner.places, len(shared.places))
		shared.places = append(shared.places, nil)
	}
	at := make([]int, len(e.add))
	for i, p := range e.add {
		at[i] = slices.MinFunc(l.places, func(a, b int) int { return cmp.Compare(len(shared.places[a]), len(shared.places[b])) })
		shared.places[at[i]] = append(shared.places[at[i]], p)
	}
	return at
}

// write plans the write of a slice, endpointUpdateGap after the one before. Like the controller, which writes a Service's
// present state when its turn comes, it makes one write of two changes if the first still waits.
func (s *sharedPods) write(due time.Duration, c sliceChange, t *sim.Trace) {
	if at, ok := s.writes[c.slice.Name]; ok && c.op == sim.Update && (*t)[at].Op != sim.Delete && (*t)[at].Due > due {
		(*t)[at].Object = c.slice
		return
	}
	s.free = max(s.free, due)
	s.writes[c.slice.Name] = len(*t)
	t.Add(s.free, c.op, c.slice)
	s.free += endpointUpdateGap
}

// leave takes a Service that is deleted from the users. Writes of its slices that still wait are made before.
func (s *sharedPods) leave(l *workload, due time.Duration, t *sim.Trace) {
	s.users = slices.DeleteFunc(s.users, func(user *workload) bool { return user == l })
	for _, g := range l.groups {
		for _, slice := range g.slices {
			if at, ok := s.writes[slice.Name]; ok {
				(*t)[at].Due = min((*t)[at].Due, due)
			}
		}
	}
}

// podKeys returns the keys of a workload's pods; of the owner of shared pods: of all these.
func (w *World) podKeys(l *workload) (keys []string) {
	if l.shared != nil && l == l.shared.owner {
		for _, pods := range l.shared.places {
			for _, p := range pods {
				keys = append(keys, p.name)
			}
		}
		return keys
	}
	for i := range l.size() {
		keys = append(keys, w.podKey(l.endpoint(i)))
	}
	return keys
}
