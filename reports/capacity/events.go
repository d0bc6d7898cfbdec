package capacity

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"synclab/sim/simulator"
)

// Kinds of churn. Each has its own seed, so that no two sources draw the same random numbers.
const (
	ofEndpoints uint64 = iota + 1
	ofServices
	ofRollouts
	ofLosses
)

// surge is the share of pods that one wave of a rollout replaces, as in a Deployment. Each wave is three events.
const surge = 0.25

// perRollout is the number of events of a rollout.
func (c Cluster) perRollout() float64 {
	wave := math.Ceil(surge * float64(c.whole()))
	return 3 * math.Ceil(float64(c.whole())/wave)
}

// rate is the number of events per second.
func (c Cluster) rate() float64 {
	if len(c.Churn.Trace) > 0 {
		return float64(len(c.Churn.Trace)) / c.Churn.traceSpan().Seconds() * cmp.Or(c.Churn.faster, 1)
	}
	return c.Churn.Endpoints + c.Churn.Services + c.Churn.Rollouts/3600*c.perRollout() + c.Churn.NodeLosses/86400*2*float64(c.pods())
}

// events returns the changes of a cluster from a time on, for a length of time. A swinging rate has one period (a day)
// in that length.
func (c Cluster) events(seed uint64, from, length time.Duration) (simulator.Source, error) {
	if len(c.Churn.Trace) > 0 {
		return &later{c.repeated(), from}, nil
	}
	everyone := simulator.Population{Services: c.Services}
	var all []simulator.Source
	var errs []error
	add := func(kind uint64, make func(seed uint64) (simulator.Source, error)) {
		s, err := make(seed<<8 + kind)
		if err != nil {
			errs = append(errs, err)
			return
		}
		all = append(all, s)
	}
	if r := c.Churn.Endpoints; r > 0 {
		add(ofEndpoints, simulator.Poisson{Population: everyone, Rate: simulator.Rate{PerSecond: r, Swing: c.Churn.Swing, Period: length}}.Source)
	}
	if r := c.Churn.Services; r > 0 {
		add(ofServices, simulator.Poisson{Population: everyone, Rate: simulator.Rate{PerSecond: r}, Kind: simulator.Services}.Source)
	}
	if at := moments(c.Churn.Rollouts/3600, length, seed<<8+ofRollouts); len(at) > 0 {
		add(ofRollouts, simulator.Rollouts{Population: everyone, Causes: simulator.Causes{At: at}, Endpoints: c.whole(), Surge: surge}.Source)
	}
	if at := moments(c.Churn.NodeLosses/86400, length, seed<<8+ofLosses); len(at) > 0 {
		add(ofLosses, simulator.NodeLosses{Population: everyone, Causes: simulator.Causes{At: at}, Pods: c.pods()}.Source)
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("churn of %d Services: %w", c.Services, errs[0])
	}
	return &later{simulator.Merge(all...), from}, nil
}

// moments returns the times of rare causes, from their rate. Each of n equal parts of the time has one cause, so that
// their number does not depend on the seed.
func moments(perSecond float64, length time.Duration, seed uint64) []time.Duration {
	n := int(math.Round(perSecond * length.Seconds()))
	rng := rand.New(rand.NewPCG(seed, 0))
	at := make([]time.Duration, n)
	for i := range at {
		at[i] = time.Duration((float64(i) + rng.Float64()) / float64(n) * float64(length))
	}
	return at
}

// later is a Source with a constant delay of all events.
type later struct {
	source simulator.Source
	by     time.Duration
}

func (l *later) Next() (simulator.Event, bool) {
	e, ok := l.source.Next()
	e.Due += l.by
	return e, ok
}

// repeated is a trace in a loop, faster as the cluster grows. Each repetition applies to the next Services, so that all
// Services of the cluster change.
type repeated struct {
	events   []simulator.Event
	services int32
	first    time.Duration
	span     time.Duration
	faster   float64
	shift    int32 // of the Services, for each repetition
	at, turn int
}

func (c Cluster) repeated() *repeated {
	r := &repeated{events: c.Churn.Trace, first: c.Churn.Trace[0].Due, span: c.Churn.traceSpan(), faster: cmp.Or(c.Churn.faster, 1)}
	for _, e := range r.events {
		r.shift = max(r.shift, e.Service+1)
	}
	r.services = max(int32(c.Services), r.shift)
	return r
}

func (r *repeated) Next() (simulator.Event, bool) {
	e := r.events[r.at]
	due := time.Duration(r.turn)*r.span + e.Due - r.first
	e.Due = time.Duration(float64(due) / r.faster)
	e.Service = int32((int64(e.Service) + int64(r.turn)*int64(r.shift)) % int64(r.services))
	e.Weight = max(1, e.Weight)
	if r.at++; r.at == len(r.events) {
		r.at, r.turn = 0, r.turn+1
	}
	return e, true
}
