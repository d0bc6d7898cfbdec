package visible

import (
	"slices"

	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// want is the desired state of a port. It is empty for a port that does not exist or has no endpoints.
type want struct{ cluster, local []*tracker.Endpoint }

// wanted returns the desired state of a port of the plan; p may be nil.
func wanted(p *plan.ServicePort) want {
	if p == nil {
		return want{}
	}
	return want{p.Cluster, p.Local}
}

func (w want) empty() bool { return len(w.cluster) == 0 && len(w.local) == 0 }

func (w want) equal(v want) bool {
	return sameTexts(w.cluster, v.cluster) && sameTexts(w.local, v.local)
}

func sameTexts(a, b []*tracker.Endpoint) bool {
	return slices.EqualFunc(a, b, func(x, y *tracker.Endpoint) bool { return x == y || x.Text == y.Text })
}
