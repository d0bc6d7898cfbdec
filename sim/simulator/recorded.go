package simulator

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/sim"
)

// Recorded returns the events of a recorded trace, such as a capture of a cluster. Each change of an EndpointSlice or
// Service is an Event of weight 1. Changes of Nodes, and of slices without a Service, are left out. names are the
// names of the Services, by their numbers.
func Recorded(trace []sim.Change) (events []Event, names []types.NamespacedName) {
	numbers := map[types.NamespacedName]int32{}
	events = make([]Event, 0, len(trace))
	for _, c := range trace {
		name, kind := serviceOf(c)
		if name.Name == "" {
			continue
		}
		number, known := numbers[name]
		if !known {
			number = int32(len(names))
			numbers[name] = number
			names = append(names, name)
		}
		events = append(events, Event{Due: c.Due, Service: number, Weight: 1, Kind: kind})
	}
	return events, names
}

func serviceOf(c sim.Change) (types.NamespacedName, Kind) {
	switch o := c.Object.(type) {
	case *corev1.Service:
		return types.NamespacedName{Namespace: o.Namespace, Name: o.Name}, Services
	case *discoveryv1.EndpointSlice:
		return types.NamespacedName{Namespace: o.Namespace, Name: o.Labels[discoveryv1.LabelServiceName]}, Endpoints
	}
	return types.NamespacedName{}, Endpoints
}
