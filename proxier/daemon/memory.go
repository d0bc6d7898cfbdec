package daemon

import (
	"os"
	"runtime/debug"
	"sync"

	"synclab/proxier"
)

// gcPercent is GOGC for a process that only proxies: the heap grows to 1.5 times the live heap, not to 2 times. A node
// pays for a proxier's memory all the time, and for its CPU only when something changes. The live heap grows with the
// cluster; the garbage of a change does not.
const gcPercent = 50

// spareMemory sets gcPercent for the duration of a Run, unless the environment sets GOGC.
func spareMemory() (restore func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	before := debug.SetGCPercent(gcPercent)
	return func() { debug.SetGCPercent(before) }
}

// afterFirst returns the memory of the first list and the first full sync to the system. The collector would keep it
// for another full sync, which may never come.
func afterFirst() func(proxier.Sync) {
	var once sync.Once
	return func(s proxier.Sync) {
		if s.Kind == proxier.Full && s.Err == nil {
			once.Do(func() { go debug.FreeOSMemory() }) // so that the next sync need not wait
		}
	}
}
