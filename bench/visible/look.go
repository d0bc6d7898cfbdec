package visible

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"synclab/proxier/tracker"
)

// Of a change that has waited for some time, polls are apart by 1/finePart of it, but at least finePeriod, to which the kernel
// adds its timer slack of 50 µs.
const (
	finePart   = 50
	finePeriod = 20 * time.Microsecond
)

// timerPeriod is the shortest that Go's timers are exact enough for.
const timerPeriod = time.Millisecond

// closed is ready at any time.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// nanosleep sleeps as exactly as the kernel does.
func nanosleep(d time.Duration) {
	t := unix.NsecToTimespec(d.Nanoseconds())
	_ = unix.Nanosleep(&t, nil) // a signal may end it early
}

// idlePeriod is the period of polling when only Quiet waits.
const idlePeriod = 10 * time.Millisecond

// Where many ports are pending, as at a cold start, and a commit brought none of a few of them, it brought none at all:
// rules that lead nowhere yet are written in several commits. Subjects take the oldest changes first, so that the few
// are mostly the oldest.
const (
	many      = 64
	fewOldest = 8
	fewSpread = 4
)

// chunk is how many ports are read between two looks at the generation.
const chunk = 16

// What is pending is read again when nothing moved for blindFactor times what a look takes, but not more often than
// every blindPeriod: commits may be missed.
const (
	blindFactor = 20
	blindPeriod = 250 * time.Millisecond
)

// watch is what the goroutine that looks knows.
type watch struct {
	generation Generation
	polled     bool
	lastPoll   time.Time
	unmoved    time.Time // the poll before the one that saw something move
	// movedSinceTool: what the tool that ends next committed has been seen to move already.
	movedSinceTool bool
	failed         *port // the one that a look over all found missing last
	looked         time.Time
	cost           time.Duration // of the last look
	again          bool          // something moved during the last look
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

// period until the next poll; 0: none before something happens. A change is polled for all the more often the shorter it has
// been pending: its Sight is late by a small part of what it waited.
func (w *Watcher) period() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case len(w.pending) > 0:
		waited := w.opts.Clock.Since(w.pending[0].queue[0].asked)
		return min(w.opts.Period, max(finePeriod, waited/finePart))
	case w.quieters > 0:
		return idlePeriod
	}
	return 0
}

// step polls the generation once, and looks if there is a reason to.
func (w *Watcher) step() {
	generation, err := w.dialect.Generation()
	now := w.opts.Clock.Now()
	w.mu.Lock()
	if w.err = err; err != nil {
		w.mu.Unlock()
		return
	}
	tool, force, pending := w.tool, w.force, len(w.pending)
	w.tool, w.force = time.Time{}, false
	moved := w.polled && generation != w.generation
	dispatch := w.again || !w.polled || generation.Dispatch != w.generation.Dispatch
	w.generation, w.polled, w.again = generation, true, false
	if moved {
		w.lastMoved, w.unmoved = now, w.lastPoll
	}
	w.lastPoll = now
	// What a tool that ended committed has moved something, or was missed. Of two families' tools at the same time, one
	// may have done this and the other that.
	known := w.movedSinceTool && len(w.opts.Families) == 1
	missed := !tool.IsZero() && w.dialect.Misses() && !dispatch && !known
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
	case now.Sub(w.looked) > max(blindPeriod, blindFactor*w.cost):
		// nf_tables counts the generation up a moment before it turns to it: a look in between saw the one before.
		moment := w.lastMoved
		if w.dialect.Misses() {
			moment = time.Time{}
		}
		w.look(moment)
	}
}

// hit is a state that a port was seen in.
type hit struct {
	port  *port
	state *awaited
}

// look reads the pending ports. What it finds is visible as of moment, unless something moved meanwhile; without a moment
// nothing told of a commit.
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
	look, err := w.dialect.Look()
	if err != nil {
		return err
	}
	defer look.Close()
	began := w.opts.Clock.Now()
	few, rest := w.order()
	held := w.generation
	found := false
	for i, ports := range [][]*port{few, rest} {
		if i > 0 && !found {
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
			}
			found = found || len(hits) > 0 || i == 0 && len(rest) == 0
			w.credit(hits, moment)
		}
	}
	return nil
}

// order gives the pending ports: a few to begin with, and the rest, to go on with if any of the few has arrived.
func (w *Watcher) order() (few, rest []*port) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) <= many {
		return slices.Clone(w.pending), nil
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
		pick(w.pending[i])
	}
	for i := range fewSpread {
		pick(w.pending[(i+1)*(len(w.pending)-1)/fewSpread])
	}
	rest = make([]*port, 0, len(w.pending))
	for _, p := range w.pending {
		if !picked[p] {
			rest = append(rest, p)
		}
	}
	return few, rest
}

// read looks ports up, in a look that began at a moment.
func (w *Watcher) read(look Look, ports []*port, began time.Time) ([]hit, error) {
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

// examine gives the latest of the states awaited that a port is in; nil: none.
func (w *Watcher) examine(look Look, p *port) (*awaited, error) {
	saw, err := look.Port(p.family, p.ServicePortName)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	queue := slices.Clone(p.queue)
	p.saw = &saw
	w.mu.Unlock()
	name := func(ep *tracker.Endpoint) string { return w.dialect.Endpoint(p.ServicePortName, ep.Text) }
	dispatched := func() (bool, bool, error) { return look.Dispatched(p.family, p.ServicePortName) }
	for _, state := range slices.Backward(queue) {
		if ok, err := state.matches(saw, name, dispatched); ok || err != nil {
			return state, err
		}
	}
	return nil, nil
}

// credit ends the wait for what was found and tells of it.
func (w *Watcher) credit(hits []hit, moment time.Time) {
	if len(hits) == 0 {
		return
	}
	var complete []*change
	read := w.opts.Clock.Now()
	w.mu.Lock()
	for _, h := range hits {
		at, since := w.momentOf(h, moment, read)
		complete = append(complete, h.port.arrived(h.state, at, since)...)
	}
	w.forget()
	w.mu.Unlock()
	for _, c := range complete {
		c.sight.Read, c.sight.Polled = read, w.unmoved
		w.opts.Seen(c.sight)
	}
}

// momentOf is when a state became visible that was read at a moment, and was brought by a commit of an earlier one, as far
// as is known. A commit cannot have brought what was asked for only afterwards, nor what a later look still missed. In
// nf_tables, where no commit goes unseen, it is then the one that was not turned to yet; elsewhere it was another one
// that nothing told of, somewhere between the looks, and what is certain is that it was over when it had been read.
func (w *Watcher) momentOf(h hit, moment, read time.Time) (at, since time.Time) {
	lacked := h.port.lacked(h.state)
	switch {
	case !moment.Before(lacked):
		return moment, time.Time{}
	case !w.dialect.Misses() && !moment.IsZero(), h.port.undone(h.state):
		return lacked, time.Time{}
	}
	return read, lacked
}
