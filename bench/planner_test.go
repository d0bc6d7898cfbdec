package bench

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"synclab/bench/pass"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
	"synclab/sim"
	"synclab/sim/world"
)

// planner makes a plan from API objects, without informers and backends.
type planner struct {
	objects *sim.Objects
	tracker *tracker.Tracker
	plan    *plan.Plan
	now     time.Time
}

func newPlanner(world *world.World) *planner {
	p := &planner{objects: world.Objects()}
	p.loadAgain(0)
	return p
}

// loadAgain makes tracker and plan from all objects.
func (p *planner) loadAgain(int) {
	node := pass.NodeName(p.objects)
	p.tracker = tracker.New(tracker.Options{Family: corev1.IPv4Protocol, NodeName: node})
	p.plan = plan.New(plan.Node{Name: node})
	for _, svc := range p.objects.Services {
		p.tracker.SetService(svc, p.now)
	}
	for _, slice := range p.objects.Slices {
		p.tracker.SetSlice(slice, p.now)
	}
	p.update()
}

func (p *planner) update() {
	changes := p.tracker.Take()
	p.plan.Update(changes.Services)
	p.tracker.Commit(changes)
}

// changeSlice toggles the readiness of an endpoint.
func (p *planner) changeSlice(i int) {
	slice := *p.objects.Slices[i%len(p.objects.Slices)]
	slice.Endpoints = append([]discoveryv1.Endpoint{}, slice.Endpoints...)
	slice.Endpoints[0].Conditions.Ready = ptr.To(i/len(p.objects.Slices)%2 == 1)
	p.tracker.SetSlice(&slice, p.now)
	p.update()
}

// changeService deletes a Service and creates it again.
func (p *planner) changeService(i int) {
	svc := p.objects.Services[i/2%len(p.objects.Services)]
	if i%2 == 0 {
		p.tracker.DeleteService(svc, p.now)
	} else {
		p.tracker.SetService(svc, p.now)
	}
	p.update()
}

func (p *planner) changeZone(i int) {
	p.plan.SetNode(plan.Node{Name: pass.NodeName(p.objects), Zone: []string{"zone-a", "zone-b"}[i%2]})
}
