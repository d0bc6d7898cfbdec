package capacity

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"synclab/reports/model"
)

// filled sets the missing factors of a Growth. Without any growth, a unit of scale doubles the Services.
func (g Growth) filled() (filled Growth, given bool) {
	given = g != Growth{}
	if !given {
		g.Services = 2
	}
	for _, factor := range []*float64{&g.Services, &g.Endpoints, &g.Nodes} {
		if *factor == 0 {
			*factor = 1
		}
	}
	return g, given
}

// Unit is the quantity of a cluster that grows, in words. Sizes are numbers of it.
type Unit string

// The units of growth. If several quantities grow, the unit is the first of these.
const (
	InServices  Unit = "Services"
	InEndpoints Unit = "endpoints of each Service"
	InNodes     Unit = "nodes"
	InChanges   Unit = "changes a second"
)

// Unit returns the unit of the growth.
func (g Growth) Unit() Unit {
	g, _ = g.filled()
	switch {
	case g.Services > 1:
		return InServices
	case g.Endpoints > 1:
		return InEndpoints
	case g.Nodes > 1:
		return InNodes
	}
	return InChanges
}

// Of returns the size of a cluster in the unit.
func (u Unit) Of(c Cluster) float64 {
	switch u {
	case InServices:
		return float64(c.Services)
	case InEndpoints:
		return c.Endpoints
	case InNodes:
		return float64(c.Nodes)
	}
	return c.rate()
}

// Whole reports whether the unit has only whole numbers.
func (u Unit) Whole() bool { return u == InServices || u == InNodes }

// validate checks a growth of today's cluster.
func (g Growth) validate(today Cluster) error {
	for name, factor := range map[string]float64{"services": g.Services, "endpoints": g.Endpoints, "nodes": g.Nodes, "churn": g.Churn} {
		if factor < 0 || math.IsInf(factor, 0) || math.IsNaN(factor) {
			return fmt.Errorf("growth of %s by %g: want a factor above 0", name, factor)
		}
	}
	if f, given := g.filled(); given && max(f.Services, f.Endpoints, f.Nodes, f.Churn) <= 1 {
		return fmt.Errorf("growth %+v: nothing grows", g)
	}
	if u := g.Unit(); !u.Whole() && u.Of(today.At(g, 1)) <= u.Of(today) {
		return fmt.Errorf("growth in %s from %g today: nothing grows", u, u.Of(today))
	}
	return nil
}

// At returns the cluster at a scale: 0 is today, 1 is grown by Growth, 2 is grown twice. The losses per node and the
// changes and rollouts per Service and pod stay constant. With a Growth.Churn, all rates but the losses grow by it.
func (c Cluster) At(g Growth, scale float64) Cluster {
	g, _ = g.filled()
	power := func(factor float64) float64 { return math.Pow(factor, scale) }
	grown := c
	grown.Services = max(1, int(math.Round(float64(c.Services)*power(g.Services))))
	grown.Endpoints = c.Endpoints * power(g.Endpoints)
	grown.Nodes = max(1, int(math.Round(float64(c.Nodes)*power(g.Nodes))))
	pods, services := power(g.Services*g.Endpoints), power(g.Services)
	if g.Churn > 0 {
		pods, services = power(g.Churn), power(g.Churn)
	}
	grown.Churn.Endpoints *= pods
	grown.Churn.Services *= services
	grown.Churn.Rollouts *= services
	grown.Churn.NodeLosses *= power(g.Nodes)
	grown.Churn.faster = cmp.Or(c.Churn.faster, 1) * pods
	return grown
}

func (c *Cluster) fill() {
	if c.Nodes == 0 {
		c.Nodes = 1
	}
	c.Churn.faster = cmp.Or(c.Churn.faster, 1)
}

func (c Cluster) validate() error {
	bad := func(v float64) bool { return v < 0 || math.IsInf(v, 0) || math.IsNaN(v) }
	switch {
	case c.Services < 1:
		return fmt.Errorf("cluster of %d Services: want at least 1", c.Services)
	case bad(c.Endpoints):
		return fmt.Errorf("cluster with %g endpoints per Service: want 0 or more", c.Endpoints)
	case c.tooLarge() != nil:
		return c.tooLarge()
	case c.Nodes < 0:
		return fmt.Errorf("cluster of %d nodes: want at least 1", c.Nodes)
	case bad(c.Churn.Endpoints) || bad(c.Churn.Services) || bad(c.Churn.Rollouts) || bad(c.Churn.NodeLosses):
		return fmt.Errorf("churn %g, %g Services a second, %g rollouts an hour, %g node losses a day: want 0 or more",
			c.Churn.Endpoints, c.Churn.Services, c.Churn.Rollouts, c.Churn.NodeLosses)
	case c.Churn.Swing < 0 || c.Churn.Swing > 1:
		return fmt.Errorf("swing of the churn %g: want 0 to 1", c.Churn.Swing)
	}
	for i := 1; i < len(c.Churn.Trace); i++ {
		if c.Churn.Trace[i].Due < c.Churn.Trace[i-1].Due {
			return fmt.Errorf("trace: event %d is due at %v, after an event at %v: want increasing times", i, c.Churn.Trace[i].Due, c.Churn.Trace[i-1].Due)
		}
	}
	return nil
}

// tooLarge returns an error that names the exceeded bound; nil if there is none.
func (c Cluster) tooLarge() error {
	total := float64(c.Services) * c.Endpoints
	switch {
	case c.Services > MostServices:
		return fmt.Errorf("cluster of %s Services: want at most %s", digits(float64(c.Services), model.Measured), grouped(MostServices))
	case c.Endpoints > MostEndpoints:
		return fmt.Errorf("cluster with %s endpoints per Service: want at most %s", digits(c.Endpoints, model.Measured), grouped(MostEndpoints))
	case total > MostTotal:
		return fmt.Errorf("cluster with %s endpoints in all: want at most %s", digits(total, model.Measured), grouped(MostTotal))
	}
	return nil
}

// pods is the number of pods of one node.
func (c Cluster) pods() int {
	return max(1, int(math.Round(float64(c.Services)*c.Endpoints/float64(max(1, c.Nodes)))))
}

// whole is the rounded number of endpoints of a Service, at least 1.
func (c Cluster) whole() int { return max(1, int(math.Round(c.Endpoints))) }

// traceSpan is the time after which a trace repeats: a mean gap after its last event.
func (c Churn) traceSpan() time.Duration {
	first, last := c.Trace[0].Due, c.Trace[len(c.Trace)-1].Due
	n := time.Duration(len(c.Trace))
	if n == 1 || last == first {
		return max(time.Second, last-first)
	}
	return (last - first) / (n - 1) * n
}
