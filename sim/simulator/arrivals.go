package simulator

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Day is the period of daily load.
const Day = 24 * time.Hour

// Population is the set of Services that a Source changes.
type Population struct {
	// Services is their number; at least 1.
	Services int
	// Skew is how unequal they are. 0: all change equally often. Otherwise above 1: the share of the k-th Service
	// falls as (1+k)^-Skew, as in Zipf's law.
	Skew float64
}

func (p Population) validate() error {
	switch {
	case p.Services < 1 || p.Services > math.MaxInt32:
		return fmt.Errorf("%d services, want 1 to %d", p.Services, math.MaxInt32)
	case p.Skew != 0 && p.Skew <= 1:
		return fmt.Errorf("skew %g, want 0 or above 1", p.Skew)
	}
	return nil
}

// chooser picks Services of a Population.
type chooser struct {
	services int
	zipf     *rand.Zipf
	rng      *rand.Rand
}

func (p Population) chooser(rng *rand.Rand) chooser {
	c := chooser{services: p.Services, rng: rng}
	if p.Skew > 0 {
		c.zipf = rand.NewZipf(rng, p.Skew, 1, uint64(p.Services-1))
	}
	return c
}

func (c *chooser) pick() int32 {
	if c.zipf != nil {
		return int32(c.zipf.Uint64())
	}
	return int32(c.rng.Uint32N(uint32(c.services)))
}

// generator returns the generator for a seed and a purpose: sources of one seed draw different numbers.
func generator(seed, purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, purpose)) }

// purposes of generators.
const (
	forPoisson uint64 = iota + 1
	forTrains
	forFleet
	forNode
)

// Rate is a number of occurrences a second, which may change with the hour.
type Rate struct {
	// PerSecond is the mean.
	PerSecond float64
	// Swing is the amplitude of the rate, as a share of the mean, at most 1. With 0.5 the rate is 1.5 times the mean
	// at the busiest time of a period, and half of it at the quietest. 0: a constant rate.
	Swing float64
	// Busiest is when the rate is highest, within each Period; 0: at the beginning.
	Busiest time.Duration
	// Period is the time after which the rate repeats. 0: a Day.
	Period time.Duration
}

func (r Rate) validate() error {
	if !(r.PerSecond > 0) || r.Swing < 0 || r.Swing > 1 || r.Period < 0 {
		return fmt.Errorf("rate %+v: want above 0 a second, a swing of 0 to 1", r)
	}
	return nil
}

// arrivals are a Poisson process of a Rate: independent of each other. A rate that changes is made by thinning:
// arrivals come at the highest rate, and each is kept with the probability of the rate at that time over the highest
// rate.
type arrivals struct {
	rate Rate
	at   float64 // seconds
	rng  *rand.Rand
}

func (a *arrivals) next() time.Duration {
	highest := a.rate.PerSecond * (1 + a.rate.Swing)
	for {
		a.at += a.rng.ExpFloat64() / highest
		if a.rate.Swing == 0 {
			break
		}
		period := a.rate.Period
		if period == 0 {
			period = Day
		}
		phase := 2 * math.Pi * (a.at - a.rate.Busiest.Seconds()) / period.Seconds()
		if a.rng.Float64()*(1+a.rate.Swing) < 1+a.rate.Swing*math.Cos(phase) {
			break
		}
	}
	return time.Duration(a.at * float64(time.Second))
}

// Poisson is single changes, independent of each other: pods that come and go in a large cluster.
type Poisson struct {
	Population
	Rate Rate
	Kind Kind
	// Weight of each change; 0: 1.
	Weight int32
}

// Source returns the Source of a seed. It never ends.
func (p Poisson) Source(seed uint64) (Source, error) {
	if err := p.validate(); err != nil {
		return nil, fmt.Errorf("poisson: %w", err)
	}
	rng := generator(seed, forPoisson)
	return &singles{arrivals{rate: p.Rate, rng: rng}, p.chooser(rng), p.Kind, max(1, p.Weight)}, nil
}

func (p Poisson) validate() error {
	if err := p.Population.validate(); err != nil {
		return err
	}
	return p.Rate.validate()
}

type singles struct {
	arrivals
	chooser
	kind   Kind
	weight int32
}

func (s *singles) Next() (Event, bool) {
	due := s.next()
	return Event{Due: due, Service: s.pick(), Weight: s.weight, Kind: s.kind}, true
}
