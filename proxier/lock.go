package proxier

// lock is a mutex for what lasts: in virtual time (testing/synctest) whoever waits for a sync.Mutex keeps the clock from
// moving on, and a sync that takes time would never end.
type lock chan struct{}

func newLock() lock { return make(lock, 1) }

func (l lock) Lock() { l <- struct{}{} }

func (l lock) Unlock() { <-l }
