package capacity

import (
	"fmt"
	"slices"
	"time"
)

// What is promised where nobody says what shall hold. Kubernetes leaves its own objectives for network programming and for
// first packets open; these are within what its users report as good:
const (
	defaultProgramming = 5 * time.Second        // of 5,000 nodes with partial syncs (KEP-3453); load tests fail at 30 s
	defaultFirstPacket = 100 * time.Microsecond // a rule walk that a round trip within a data centre hides
	defaultCPU         = 0.5                    // of a CPU, on average: a small part of every node
	defaultMemory      = 512 << 20              // below which restores of large rulesets have been killed
	defaultStart       = 30 * time.Second       // a node that joins, or a proxier that restarts; the limit of load tests
)

// WithDefaults promises a default of everything that is not promised.
func (p Promise) WithDefaults() Promise {
	if p.ProgrammingP99 == 0 {
		p.ProgrammingP99 = defaultProgramming
	}
	if p.FirstPacketP99 == 0 {
		p.FirstPacketP99 = defaultFirstPacket
	}
	if p.CPU == 0 {
		p.CPU = defaultCPU
	}
	if p.Memory == 0 {
		p.Memory = defaultMemory
	}
	if p.Start == 0 {
		p.Start = defaultStart
	}
	return p
}

// PromiseNames are the names of all promises, as they are shown.
func PromiseNames() []string {
	return []string{ProgrammingP99, FirstPacketP99, CPU, Memory, Start}
}

// Bound of a promise by name, in s, CPUs or B; 0: it is not promised.
func (p Promise) Bound(name string) float64 {
	switch name {
	case ProgrammingP99:
		return p.ProgrammingP99.Seconds()
	case FirstPacketP99:
		return p.FirstPacketP99.Seconds()
	case CPU:
		return p.CPU
	case Memory:
		return float64(p.Memory)
	case Start:
		return p.Start.Seconds()
	}
	return 0
}

// Promised are the names of what is promised.
func (p Promise) Promised() []string {
	return slices.DeleteFunc(PromiseNames(), func(name string) bool { return p.Bound(name) == 0 })
}

func (p Promise) validate() error {
	for _, name := range PromiseNames() {
		if p.Bound(name) < 0 {
			return fmt.Errorf("promise %s: %g is below 0", name, p.Bound(name))
		}
	}
	return nil
}
