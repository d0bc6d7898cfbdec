package twin

import (
	"math"
	"math/rand/v2"
	"time"
)

// SyncKind is what a sync writes, by its name in records and in cost models.
type SyncKind = string

const (
	// Partial: what changed.
	Partial SyncKind = "partial"
	// Full: everything.
	Full SyncKind = "full"
)

// Cost is what syncs of a subject take on some machine, at some size of the cluster; the Syncs of a fitted cost model are
// one. A Cost may be used by several goroutines at once, so it must not remember anything: what it draws comes from the
// generator it is given.
type Cost interface {
	// Sync draws how long a sync takes in which so many Services changed, by so many changes (the sum of the Weights of
	// their Events). Both may be 0: a sync by time alone.
	Sync(kind SyncKind, changedServices, changes int, rng *rand.Rand) time.Duration
}

// Linear is the simplest Cost: a fixed part and one for each Service and change. It is for tests and for first guesses;
// calibration finds better ones.
type Linear struct {
	// Full and Partial are the fixed parts. A full sync costs the same whatever changed.
	Full, Partial time.Duration
	// PerService and PerChange are for what changed since the last sync, of partial ones.
	PerService, PerChange time.Duration
	// Spread is the standard deviation of the logarithm of what syncs take: 0.1 is about 10 %.
	Spread float64
}

// Sync of a Linear cost.
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
