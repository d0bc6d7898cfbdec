package sim

// DropWatches ends the watches that are open, as when the API server restarts.
// Informers come back from where they were.
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

// Forget drops the past events: watches that have not been told of all of them,
// or begin at an older version, get 410 Gone and their informers list again.
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

// BeginGap ends the watches that are open, and answers none that comes until
// EndGap; lists are answered. What is written meanwhile is missed by all.
func (c *Cluster) BeginGap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range c.journals {
		j.away = true
	}
	c.dropWatches()
}

// EndGap ends a gap, if there is one. With forget, what was written in it has
// been forgotten: who came back from before gets 410 Gone, lists again, and
// learns that way of deletions, too. Otherwise watches go on where they were.
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

// Heal ends a gap, after which watches go on where they were, and everything
// else that disturbs them.
func (c *Cluster) Heal() {
	c.EndGap(false)
	c.Disturbance.Heal()
}
