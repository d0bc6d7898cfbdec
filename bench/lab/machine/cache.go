package machine

import (
	"fmt"
	"runtime/debug"
)

const (
	// cacheLines are 4 MiB: more than the cache of one CPU usually holds, and less than the one that CPUs share.
	cacheLines = 4 << 20 / lineSize
	lineSize   = 64
	// cacheCPUs is the largest number of CPUs that are timed, each for some 40 ms.
	cacheCPUs = 8
)

// CacheLoad is the time of one load on one CPU whose address is known only after the load before, from 4 MiB that were just
// read. The CPU's caches answer it, unless others use them: on a shared machine, other tenants. Work that walks lists of that
// size takes as much longer then.
type CacheLoad struct {
	CPU     int
	Seconds float64
}

// CacheLoads times the first CPUs on which the caller may run, one after the other.
func CacheLoads() (loads []CacheLoad, err error) {
	cpus, err := CPUs()
	if err != nil {
		return nil, err
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection uses the caches too
	order := make([]uint32, cacheLines)
	fillRing(order)
	lines := make([][lineSize / 4]uint32, cacheLines)
	for i, next := range order {
		lines[i][0] = next
	}
	for _, cpu := range cpus[:min(len(cpus), cacheCPUs)] {
		release, err := Pin(cpu)
		if err != nil {
			return loads, err
		}
		at := uint32(0)
		walk := func() {
			for range cacheLines {
				at = lines[at][0]
			}
		}
		walk()
		least := min(timed(walk), timed(walk), timed(walk)) // one that was interrupted does not count
		loads = append(loads, CacheLoad{cpu, least / cacheLines})
		release()
		if at != 0 {
			return loads, fmt.Errorf("a walk through %d lines ended at line %d, not where it began", cacheLines, at)
		}
	}
	return loads, nil
}
