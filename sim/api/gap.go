package api

// DropWatches ends all open watches, as a restart of the API server does. Informers resume where they were.
func (c *Cluster) DropWatches() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropWatches()
}

func (c *Cluster) dropWatches() {
	for _, j := range c.journals {
		for r := range j.readers {
			r.stop()
		}
	}
}

// Forget drops the past events. Watches that have not delivered all of them, or begin at an older version, get 410
// Gone, and their informers list again.
func (c *Cluster) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
}

func (c *Cluster) forget() {
	for _, j := range c.journals {
		j.forget(c.version)
	}
}

// BeginGap begins an outage: it ends all open watches, and new ones get no answer until EndGap. Lists are answered.
// All watches miss the writes meanwhile.
func (c *Cluster) BeginGap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range c.journals {
		j.away = true
	}
	c.dropWatches()
}

// EndGap ends an outage, if there is one. With forget, the writes of the outage are forgotten: watches from before it
// get 410 Gone, and their informers list again and find deletions, too. Otherwise watches resume where they were.
func (c *Cluster) EndGap(forget bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range c.journals {
		if !j.away {
			return
		}
	}
	if forget {
		c.forget()
	}
	for _, j := range c.journals {
		j.away = false
		j.wake.Broadcast()
	}
}

// Heal ends an outage, after which watches resume where they were, and all disturbances of watches.
func (c *Cluster) Heal() {
	c.EndGap(false)
	c.WatchFaults.Heal()
}
