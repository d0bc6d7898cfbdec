package twin

import (
	"math"
	"math/rand/v2"
	"time"
)

// SyncKind is what a sync writes.
type SyncKind uint8

const (
	// Partial: what changed.
	Partial SyncKind = iota
	// Full: everything.
	Full
)

// String as in records.
func (k SyncKind) String() string {
	if k == Full {
		return "full"
	}
	return "partial"
}

// Cost is what syncs of a subject cost on some machine, at some size of the cluster. A Cost may be used by several
// goroutines at once, so it must not remember anything: what it draws comes from the generator it is given.
type Cost interface {
	// Sync draws how long a sync takes in which so many Services changed, by so many changes (the sum of the Weights of
	// their Events). Both may be 0: a sync by time alone.
	Sync(kind SyncKind, services, changes int, rng *rand.Rand) time.Duration
	// CPU is the CPU time that such a sync uses which took so long.
	CPU(kind SyncKind, services, changes int, took time.Duration) time.Duration
}

// Linear is the simplest Cost: a fixed part and one for each Service and change. It is for tests and for first guesses;
// package model of reports fits better ones.
type Linear struct {
	// Full and Partial are the fixed parts. A full sync costs the same whatever changed.
	Full, Partial time.Duration
	// PerService and PerChange are for what changed since the last sync, of partial ones.
	PerService, PerChange time.Duration
	// Spread is the standard deviation of the logarithm of what syncs take: 0.1 is about 10 %.
	Spread float64
	// Busy is how many CPUs a sync keeps busy. 0: 1.
	Busy float64
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

// CPU of a Linear cost.
func (l Linear) CPU(_ SyncKind, _, _ int, took time.Duration) time.Duration {
	if l.Busy == 0 {
		return took
	}
	return time.Duration(l.Busy * float64(took))
}
