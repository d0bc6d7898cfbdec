package simulator

import "time"

// follower is a node of a fleet, at some position of the timeline. It makes the same calls to its schedule as a loop,
// except for redundant requests, and has the same syncs.
type follower struct {
	node
	class   int
	born    bool
	over    bool
	running bool
	// installed is the first event of the timeline that is not installed, seen the first that no sync has taken yet.
	installed, seen int
	// onSync is for tests.
	onSync func(Sync)
}

// follow advances the node to the time that is known.
func (f *follower) follow(tl *timeline, c *counts) {
	if !f.born {
		if tl.known < f.Born {
			f.installed = len(tl.due)
			f.seen = f.installed
			return
		}
		f.born = true
		f.installed = tl.dueBefore(f.Born)
		f.seen = f.installed
	}
	for !f.over && f.step(tl, c) {
	}
}

// step ends the sync under way, if there is one, and starts the next. It returns false when the next step depends on
// events that are not known yet.
func (f *follower) step(tl *timeline, c *counts) bool {
	all := len(tl.due)
	asked := false // by the first event that is not seen
	if f.running {
		if f.seen == all && f.sync.End > tl.known {
			return false
		}
		if asked = f.seen < all && tl.due[f.seen] <= f.sync.End; asked {
			f.request(tl.due[f.seen])
		}
		f.finish()
		f.running = false
	}
	at, ok := f.next()
	if !asked && f.seen < all && (!ok || tl.due[f.seen] <= at) {
		f.request(tl.due[f.seen])
		at, ok = f.next()
	}
	if !ok || at > tl.known {
		return false
	}
	if f.node.over(at) {
		f.over = true
		return false
	}
	f.take(tl, c, at)
	return true
}

// take starts a sync of what is pending at a time. It counts what the sync installs at once: nothing changes that
// before the sync ends.
func (f *follower) take(tl *timeline, c *counts, at time.Duration) {
	from, to := f.installed, tl.dueBy(at)
	services, changes, oldest := 0, 0, time.Duration(0)
	if from < to {
		services, changes, oldest = tl.services(from, to), tl.changes(from, to), tl.due[from]
	}
	f.start(at, services, changes, oldest)
	f.running, f.seen = true, to
	if !f.sync.Failed {
		f.installed = to
		if oldest < f.span.Since && from < to {
			from = min(to, tl.dueBefore(f.span.Since))
		}
		if from < to {
			c.latencies(tl, from, to, f.sync.End)
		}
	}
	if f.onSync != nil {
		f.onSync(f.sync)
	}
}

// stop ends the node when all events are known.
func (f *follower) stop(tl *timeline) {
	if f.running {
		f.finish()
		f.running = false
	}
	waiting, oldest := len(tl.due)-f.installed, time.Duration(0)
	if waiting > 0 {
		oldest = tl.due[f.installed]
	}
	f.close(int64(waiting), oldest)
}

// counts is a flat, small histogram of one node's latencies in one window, and the histogram of a worker's nodes.
type counts struct {
	node      [allBins]uint32
	low, high int // bins of node that may not be 0
	longest   time.Duration

	all Histogram
}

func newCounts() *counts { return &counts{low: allBins} }

// latencies counts the latencies of the events a to b-1, which a sync that ended at end has installed.
func (c *counts) latencies(tl *timeline, a, b int, end time.Duration) {
	due := tl.due[a:b]
	longest, shortest := end-due[0], end-due[len(due)-1]
	c.longest = max(c.longest, longest)
	low, high := binOf(shortest), binOf(longest)
	c.low, c.high = min(c.low, low), max(c.high, high)
	if len(due) <= 2*(high-low+1) {
		for _, d := range due {
			c.node[binOf(end-d)]++
		}
		return
	}
	// Bin by bin, longest latencies first: an event is in bin or above if it is due by end minus the bin's lower edge.
	for bin := high; bin > low; bin-- {
		to := min(b, tl.dueBy(end-lowerEdge(bin)))
		c.node[bin] += uint32(to - a)
		a = to
	}
	c.node[low] += uint32(b - a)
}

// flush adds the counts of a node to its own histogram and to that of all nodes.
func (c *counts) flush(h *Histogram) {
	for bin := c.low; bin <= c.high; bin++ {
		if n := c.node[bin]; n > 0 {
			h.add(bin, int64(n))
			c.all.add(bin, int64(n))
			c.node[bin] = 0
		}
	}
	h.Max = max(h.Max, c.longest)
	c.all.Max = max(c.all.Max, c.longest)
	c.low, c.high, c.longest = allBins, 0, 0
}
