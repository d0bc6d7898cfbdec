package daemon

import (
	"os"
	"runtime/debug"
	"sync"

	"synclab/proxier"
)

// gcPercent of Go's collector in a process that does nothing but proxy: the heap grows to half as much again as is in
// use, not to twice as much. A node pays for a proxier's memory all the time, and for its CPU when something changes;
// what is in use grows with the cluster, what a change leaves to collect does not.
const gcPercent = 50

// spareMemory sets the collector for the length of a Run, unless the environment has a wish of its own (GOGC).
func spareMemory() (restore func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	before := debug.SetGCPercent(gcPercent)
	return func() { debug.SetGCPercent(before) }
}

// afterFirst gives back to the system what only the first list and the first full sync needed. The collector would
// keep it for the next of their kind, which may never come.
func afterFirst() func(proxier.Sync) {
	var once sync.Once
	return func(s proxier.Sync) {
		if s.Kind == proxier.Full && s.Err == nil {
			once.Do(func() { go debug.FreeOSMemory() }) // the next sync need not wait for it
		}
	}
}
