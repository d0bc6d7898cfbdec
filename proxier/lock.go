package proxier

// lock is a mutex for long critical sections. In virtual time (testing/synctest), a goroutine that waits for a
// sync.Mutex stops the clock, so a sync that takes time would never end.
type lock chan struct{}

func newLock() lock { return make(lock, 1) }

func (l lock) Lock() { l <- struct{}{} }

func (l lock) Unlock() { <-l }
