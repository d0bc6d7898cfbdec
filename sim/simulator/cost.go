package simulator

import (
	"math"
	"math/rand/v2"
	"time"
)

// SyncKind is the scope of a sync, named as in records and in cost models.
type SyncKind = string

const (
	// Partial syncs write what changed.
	Partial SyncKind = "partial"
	// Full syncs write everything.
	Full SyncKind = "full"
)

// Cost is the duration of a subject's syncs on some machine, at some size of the cluster; the Syncs of a fitted cost
// model are one. Several goroutines may use a Cost at once, so it must have no state: it draws from the generator that
// it is given.
type Cost interface {
	// Sync draws the duration of a sync after so many changes (the sum of the Weights of their Events) of so many
	// Services. Both may be 0: a sync that only the interval triggers.
	Sync(kind SyncKind, changedServices, changes int, rng *rand.Rand) time.Duration
}

// Linear is the simplest Cost: a fixed part and one for each Service and change. It is for tests and for first
// estimates; calibration finds better ones.
type Linear struct {
	// Full and Partial are the fixed parts. A full sync costs the same whatever changed.
	Full, Partial time.Duration
	// PerService and PerChange are the cost of changes since the last sync, in partial syncs.
	PerService, PerChange time.Duration
	// Spread is the standard deviation of the logarithm of sync durations: 0.1 is about 10 %.
	Spread float64
}

// Sync draws the duration of a sync.
func (l Linear) Sync(kind SyncKind, services, changes int, rng *rand.Rand) time.Duration {
	took := l.Full
	if kind == Partial {
		took = l.Partial + time.Duration(services)*l.PerService + time.Duration(changes)*l.PerChange
	}
	if l.Spread == 0 {
		return took
	}
	return time.Duration(float64(took) * math.Exp(l.Spread*rng.NormFloat64()))
}
