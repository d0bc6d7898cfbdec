package simulator

import (
	"fmt"
	"time"

	"synclab/proxier/tracker"
)

// Options are the options of Run.
type Options struct {
	Span
	// OnSync is called after every sync, also after failed ones.
	OnSync func(Sync)
	// OnChange is called with the latency of every counted change, when its sync ends, in no particular order.
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

// Run simulates one node. Every event goes through the proxier's own coalescing, every decision through its schedule.
func Run(s Settings, source Source, opts Options) (*Result, error) {
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("simulator: %w", err)
	}
	l := &loop{opts: opts, source: source}
	if err := l.init(s, opts.Span); err != nil {
		return nil, fmt.Errorf("simulator: %w", err)
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

// see applies the next event.
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

// seeUntil applies the events that are due until a time. A sync that starts at that time takes them.
func (l *loop) seeUntil(at time.Duration) {
	for l.more && l.head.Due <= at {
		l.see()
	}
}

// run simulates one sync: it takes what is pending, lets time pass, and installs or requeues it.
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
		l.pending.Requeue(taken)
	} else {
		l.installed(taken)
		l.pending.Done(taken)
	}
	l.finish()
	if l.opts.OnSync != nil {
		l.opts.OnSync(l.sync)
	}
}

// installed counts the latencies of the changes that a sync has installed.
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

// end counts the changes that still wait.
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
