package machine

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Each CPU that this process may use is timed once.
func TestCacheLoads(t *testing.T) {
	var allowed, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	loads, err := CacheLoads()
	if err != nil {
		t.Fatal(err)
	}
	var cpus []int
	for _, load := range loads {
		if load.Seconds <= 0 || !allowed.IsSet(load.CPU) || slices.Contains(cpus, load.CPU) {
			t.Errorf("%+v of %v", load, loads)
		}
		cpus = append(cpus, load.CPU)
	}
	if len(cpus) != min(allowed.Count(), cacheCPUs) {
		t.Errorf("%d CPUs timed, of %d", len(cpus), allowed.Count())
	}
	if err := unix.SchedGetaffinity(0, &after); err != nil || after != allowed {
		t.Errorf("the caller's CPUs are %v afterwards, were %v (%v)", after, allowed, err)
	}
}
