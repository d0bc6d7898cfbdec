package capacity

import (
	"fmt"
	"slices"
	"time"
)

// The default SLOs. Kubernetes leaves the values of its own SLOs for network programming and first packets open. These
// values are within the range that Kubernetes users report as good.
const (
	defaultProgramming = 5 * time.Second        // at 5,000 nodes with partial syncs (KEP-3453); load tests fail at 30 s
	defaultFirstPacket = 100 * time.Microsecond // evaluation of rules; small compared with a round trip within a data centre
	defaultCPU         = 0.5                    // CPUs, on average: a small part of every node
	defaultMemory      = 512 << 20              // B; with less, restores of large rulesets have been killed
	defaultStart       = 30 * time.Second       // when a node joins or a proxier restarts; the limit of load tests
)

// WithDefaults sets the default of each SLO that is not given.
func (p SLOs) WithDefaults() SLOs {
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

// SLONames returns the names of all SLOs, in display order.
func SLONames() []string {
	return []string{ProgrammingP99, FirstPacketP99, CPU, Memory, Start}
}

// Bound returns the bound of an SLO by name, in s, CPUs or B; 0: no SLO.
func (p SLOs) Bound(name string) float64 {
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

// Given returns the names of the given SLOs.
func (p SLOs) Given() []string {
	return slices.DeleteFunc(SLONames(), func(name string) bool { return p.Bound(name) == 0 })
}

func (p SLOs) validate() error {
	for _, name := range SLONames() {
		if p.Bound(name) < 0 {
			return fmt.Errorf("SLO %s: %g: want 0 or more", name, p.Bound(name))
		}
	}
	return nil
}
