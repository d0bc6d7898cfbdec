package api

import (
	"slices"
	"strconv"
	"synclab/sim"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Write is one write to the cluster.
type Write struct {
	// Version is the resourceVersion of the write and of its object. Versions of all kinds are one sequence.
	Version int64
	Op      sim.Op
	// Object is the new state, or the last one on Delete. It must not be written to.
	Object runtime.Object
}

// Observe reports the content of the cluster and all later writes. It calls present once, before it returns, with a
// version and the objects as of then. After that it calls written for each write in order, from the writing goroutine;
// no write is left out. Objects that were loaded without a resourceVersion have the cluster's.
//
// Both are called under the cluster's lock: they must be quick, must not wait, and must not call the cluster.
// Observers, unlike watches, put no back-pressure on writes. From then on Load is refused. stop ends the observation:
// once it has returned, written is not called any more.
func (c *Cluster) Observe(present func(version int64, o *sim.Objects), written func(Write)) (stop func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, err := c.objects()
	if err != nil {
		return nil, err
	}
	present(c.version, o)
	observer := &written
	c.observers = append(c.observers, observer)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.observers = slices.DeleteFunc(c.observers, func(o *func(Write)) bool { return o == observer })
	}, nil
}

// objects returns copies of all objects of the cluster.
func (c *Cluster) objects() (*sim.Objects, error) {
	all := &sim.Objects{}
	for resource := range c.journals {
		list, err := c.existing(resource)
		if err != nil {
			return nil, err
		}
		for _, o := range list {
			if m := o.(metav1.Object); m.GetResourceVersion() == "" {
				m.SetResourceVersion(strconv.FormatInt(c.version, 10))
			}
			all.Add(o)
		}
	}
	all.Sort()
	return all, nil
}

// tell passes a write on to the observers.
func (c *Cluster) tell(w Write) {
	for _, written := range c.observers {
		(*written)(w)
	}
}
