package twin

import (
	"fmt"
	"time"

	"synclab/proxier/tracker"
)

// Options of Run.
type Options struct {
	Span
	// OnSync is called after every sync, failed ones too.
	OnSync func(Sync)
	// OnChange is called with the latency of every change that is counted, as its sync ends, in no particular order.
	OnChange func(due, latency time.Duration)
}

// loop is the sync loop of one node, event by event.
type loop struct {
	node
	opts    Options
	source  Source
	head    Event // the next one
	more    bool
	pending tracker.Pending[int32]
}

// Run simulates one node: every event goes through the proxier's own coalescing, every decision through its schedule.
func Run(s Settings, source Source, opts Options) (*Result, error) {
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("twin: %w", err)
	}
	l := &loop{opts: opts, source: source}
	if err := l.init(s, opts.Span); err != nil {
		return nil, fmt.Errorf("twin: %w", err)
	}
	l.pull()
	for l.more && l.head.Due < s.Born {
		l.pull()
	}
	for {
		at, ok := l.next()
		if l.more && (!ok || l.head.Due <= at) {
			l.see()
			at, _ = l.next()
			ok = true
		}
		if !ok || l.over(at) {
			break
		}
		l.seeUntil(at)
		l.run(at)
	}
	l.end()
	return &l.result, nil
}

// pull gets the next event.
func (l *loop) pull() {
	l.head, l.more = l.source.Next()
	l.more = l.more && l.head.Due < l.opts.Length
}

// see lets the next event happen.
func (l *loop) see() {
	due := epoch.Add(l.head.Due)
	e := l.pending.Mark(l.head.Service, due)
	if l.head.Kind == Services {
		e.Services += int(l.head.Weight)
	} else {
		e.Slices += int(l.head.Weight)
	}
	e.Triggers = append(e.Triggers, due)
	l.schedule.Request(due)
	l.pull()
}

// seeUntil lets the events happen that are due until then. What happens at the moment when a sync starts, it takes.
func (l *loop) seeUntil(at time.Duration) {
	for l.more && l.head.Due <= at {
		l.see()
	}
}

// run is one sync: take what is pending, let time pass, install it or give it back.
func (l *loop) run(at time.Duration) {
	taken := l.pending.Take()
	changes, oldest := 0, time.Duration(0)
	first := true
	for _, e := range taken {
		changes += e.Services + e.Slices
		if queued := e.Queued.Sub(epoch); first || queued < oldest {
			oldest, first = queued, false
		}
	}
	l.start(at, len(taken), changes, oldest)
	l.seeUntil(l.sync.End)
	if l.sync.Failed {
		l.pending.GiveBack(taken)
	} else {
		l.installed(taken)
		l.pending.Done(taken)
	}
	l.finish()
	if l.opts.OnSync != nil {
		l.opts.OnSync(l.sync)
	}
}

// installed counts the latencies of what a sync has installed.
func (l *loop) installed(taken map[int32]*tracker.Events) {
	for _, e := range taken {
		for _, trigger := range e.Triggers {
			due := trigger.Sub(epoch)
			if due < l.opts.Since {
				continue
			}
			latency := l.sync.End - due
			l.result.Latency.Add(latency)
			if l.opts.OnChange != nil {
				l.opts.OnChange(due, latency)
			}
		}
	}
}

// end counts what still waits.
func (l *loop) end() {
	l.seeUntil(l.opts.Length)
	var waiting int64
	oldest := time.Duration(0)
	for _, e := range l.pending.Take() {
		for _, trigger := range e.Triggers {
			due := trigger.Sub(epoch)
			if waiting == 0 || due < oldest {
				oldest = due
			}
			waiting++
		}
	}
	l.close(waiting, oldest)
}
