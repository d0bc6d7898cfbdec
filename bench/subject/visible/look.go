package visible

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"synclab/proxier/tracker"
)

// For a change that has waited for some time, the poll period is 1/finePart of this time, but at least finePeriod. The
// kernel adds its timer slack of 50 µs.
const (
	finePart   = 50
	finePeriod = 20 * time.Microsecond
)

// timerPeriod is the shortest period for which Go's timers are exact enough.
const timerPeriod = time.Millisecond

// closed is always ready.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// nanosleep sleeps with the kernel's precision.
func nanosleep(d time.Duration) {
	t := unix.NsecToTimespec(d.Nanoseconds())
	_ = unix.Nanosleep(&t, nil) // a signal may end it early
}

// idlePeriod is the poll period while only Quiet waits.
const idlePeriod = 10 * time.Millisecond

// With many pending ports, as at a cold start, a few ports are read first after a commit. If none of the few has
// arrived, the rest is skipped: subjects write unreachable chains in several commits. The few are mostly the oldest,
// because subjects process the oldest changes first. The rest is read all the same once wholeFactor times what such a read
// takes has passed, and at least wholePeriod, so that no port is late by more.
const (
	many        = 64
	fewOldest   = 8
	fewSpread   = 4
	wholeFactor = 50
	wholePeriod = 100 * time.Millisecond
)

// chunk is the number of ports that are read between two reads of the generation.
const chunk = 16

// If nothing has moved, pending ports are read again after blindFactor times the duration of a read, but at least
// RulesetReader.Blind, which is mostly blindPeriod: a commit may have been missed.
const (
	blindFactor = 20
	blindPeriod = 250 * time.Millisecond
)

// watch is the state of the reading goroutine.
type watch struct {
	generation Generation
	polled     bool
	lastPoll   time.Time
	unmoved    time.Time // the poll before the one that saw a change
	// movedSinceTool: the commit of the next tool to end has already changed the generation.
	movedSinceTool bool
	failed         *port // the port that the last full read found missing
	looked         time.Time
	cost           time.Duration // of the last read
	whole          time.Time     // end of the last read of all pending ports
	wholeCost      time.Duration // of that read
	broken         bool          // a commit broke off the last such read: the next one is not broken off
	again          bool          // the generation changed during the last read
	doubts
}

func (w *Watcher) run() {
	defer close(w.ended)
	timer := w.opts.Clock.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		w.step()
		period := w.period()
		var soon <-chan struct{}
		switch {
		case w.sleep != nil && period > 0 && period < timerPeriod:
			w.sleep(period)
			soon = closed
		case period > 0:
			timer.Reset(period)
		}
		select {
		case <-soon:
		case <-timer.C():
		case <-w.kick:
		case ask := <-w.asked:
			ask()
		case <-w.closing:
			return
		}
	}
}

// period returns the time until the next poll; 0 if there is none before another event. A change that has waited for a
// short time is polled for more often, so its VisibleChange is late by a small part of its wait.
func (w *Watcher) period() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case len(w.listed) > 0:
		waited := w.opts.Clock.Since(w.listed[0].queue[0].asked)
		return min(w.opts.Period, max(finePeriod, waited/finePart))
	case w.quieters > 0:
		return idlePeriod
	}
	return 0
}

// step polls the generation once, and reads ports if there is a reason to.
func (w *Watcher) step() {
	generation, err := w.reader.Generation()
	now := w.opts.Clock.Now()
	w.mu.Lock()
	if w.err = err; err != nil {
		w.mu.Unlock()
		return
	}
	tool, force, pending := w.tool, w.force, w.pending()
	w.tool, w.force = time.Time{}, false
	moved := w.polled && generation != w.generation
	dispatch := w.again || !w.polled || generation.Dispatch != w.generation.Dispatch
	w.generation, w.polled, w.again = generation, true, false
	if moved {
		w.lastMoved, w.unmoved = now, w.lastPoll
	}
	w.lastPoll = now
	// A tool's commit has changed the generation, or was missed. With two families, one tool's commit may have changed
	// the generation and another tool's commit may have been missed.
	known := w.movedSinceTool && len(w.opts.Families) == 1
	missed := !tool.IsZero() && w.reader.Misses() && !dispatch && !known
	if missed && tool.After(w.lastMoved) {
		w.lastMoved = tool
	}
	w.mu.Unlock()
	w.movedSinceTool = tool.IsZero() && (w.movedSinceTool || dispatch)
	if pending == 0 {
		return
	}
	defer w.doubt(now)
	switch {
	case dispatch, force:
		w.look(now)
	case missed:
		w.look(tool)
	case now.Sub(w.looked) > max(w.reader.Blind(), blindFactor*w.cost):
		// nf_tables increments the generation shortly before the new rules take effect: a read in between sees the old
		// rules.
		moment := w.lastMoved
		if w.reader.Misses() {
			moment = time.Time{}
		}
		w.look(moment)
	}
}

// hit is a state that a read found for a port.
type hit struct {
	port  *port
	state *awaited
}

// look reads the pending ports. States that it finds are visible from moment, unless the generation changes meanwhile.
// A zero moment means that no event announced a commit.
func (w *Watcher) look(moment time.Time) {
	began := w.opts.Clock.Now()
	err := w.lookAt(moment)
	w.looked = w.opts.Clock.Now()
	w.cost = w.looked.Sub(began)
	if err != nil {
		w.again = true
		w.mu.Lock()
		w.err = err
		w.mu.Unlock()
	}
}

func (w *Watcher) lookAt(moment time.Time) error {
	look, err := w.reader.Look()
	if err != nil {
		return err
	}
	defer look.Close()
	defer w.forget()
	began := w.opts.Clock.Now()
	if w.whole.IsZero() {
		w.whole = began
	}
	few, rest := w.order()
	held := w.generation
	found := false
	for i, ports := range [][]*port{few, rest} {
		if i > 0 && !found && began.Sub(w.whole) < max(wholePeriod, wholeFactor*w.wholeCost) {
			return nil
		}
		for part := range slices.Chunk(ports, chunk) {
			hits, err := w.read(look, part, began)
			if err != nil {
				return err
			}
			now, err := look.Generation()
			if err != nil {
				return err
			}
			if now.Dispatch != held.Dispatch {
				held, moment, w.again = now, w.opts.Clock.Now(), true
				if i > 0 && !found && !w.broken { // it may be the commit that brings everything: see at once
					w.broken, w.whole = true, moment
					return nil
				}
			}
			found = found || len(hits) > 0 || i == 0 && len(rest) == 0
			w.credit(hits, moment)
		}
	}
	w.whole, w.broken = w.opts.Clock.Now(), false
	w.wholeCost = w.whole.Sub(began)
	return nil
}

// order returns a few pending ports to read first, and the rest to read only if one of the few has arrived.
func (w *Watcher) order() (few, rest []*port) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.listed) <= many {
		return slices.Clone(w.listed), nil
	}
	picked := map[*port]bool{}
	pick := func(p *port) {
		if !picked[p] {
			picked[p] = true
			few = append(few, p)
		}
	}
	if w.failed != nil && len(w.failed.queue) > 0 {
		pick(w.failed)
	}
	for i := range fewOldest {
		pick(w.listed[i])
	}
	for i := range fewSpread {
		pick(w.listed[(i+1)*(len(w.listed)-1)/fewSpread])
	}
	rest = make([]*port, 0, len(w.listed))
	for _, p := range w.listed {
		if !picked[p] {
			rest = append(rest, p)
		}
	}
	return few, rest
}

// read reads ports, in a look that began at a given time.
func (w *Watcher) read(look Snapshot, ports []*port, began time.Time) ([]hit, error) {
	var hits []hit
	for _, p := range ports {
		state, err := w.examine(look, p)
		if err != nil {
			return nil, err
		}
		if state != nil {
			hits = append(hits, hit{p, state})
		} else {
			w.failed, p.missed = p, began
		}
	}
	return hits, nil
}

// examine returns the latest awaited state that a port is in; nil if there is none.
func (w *Watcher) examine(look Snapshot, p *port) (*awaited, error) {
	saw, err := look.Port(p.family, p.ServicePortName)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	queue := slices.Clone(p.queue)
	p.saw = &saw
	w.mu.Unlock()
	name := func(ep *tracker.Endpoint) string { return w.reader.Endpoint(p.ServicePortName, ep.Text) }
	dispatched := func() (bool, bool, error) { return look.Dispatched(p.family, p.ServicePortName) }
	for _, state := range slices.Backward(queue) {
		if ok, err := state.matches(saw, name, dispatched); ok || err != nil {
			return state, err
		}
	}
	return nil, nil
}

// credit ends the wait for the found states and reports their changes.
func (w *Watcher) credit(hits []hit, moment time.Time) {
	if len(hits) == 0 {
		return
	}
	var complete []*change
	read := w.opts.Clock.Now()
	w.mu.Lock()
	for _, h := range hits {
		at, since := w.momentOf(h, moment, read)
		if shown := h.port.saw; !shown.At.IsZero() {
			at, since = shown.At, shown.Since
		}
		complete = append(complete, h.port.arrived(h.state, at, since)...)
		if len(h.port.queue) == 0 {
			w.settle(h.port)
		}
	}
	w.mu.Unlock()
	for _, c := range complete {
		c.seen.Read, c.seen.Polled = read, w.unmoved
		w.opts.Seen(c.seen)
	}
}

// momentOf returns when a state became visible that was read at read, after a commit at moment. The state cannot be
// older than its change, or than the last read that missed it. See docs/design/visibility.md.
func (w *Watcher) momentOf(h hit, moment, read time.Time) (at, since time.Time) {
	lacked := h.port.lacked(h.state)
	switch {
	case !moment.Before(lacked):
		return moment, time.Time{}
	case !w.reader.Misses() && !moment.IsZero(), h.port.undone(h.state):
		return lacked, time.Time{}
	}
	return read, lacked
}
