package visible

import (
	"fmt"
	"time"
)

// Unrecognised is the error of a Watcher that cannot read the kernel's rules for a Service port: the wait would never
// end.
type Unrecognised struct {
	Service string // port and family
	Rule    string // with its place
	Lasted  time.Duration
}

func (u *Unrecognised) Error() string {
	return fmt.Sprintf("service %s: unrecognised rule, there for %v: %s (add it to package bench/subject/visible, or omit this subject)",
		u.Service, u.Lasted.Round(time.Second), u.Rule)
}

// Late ports are checked for rules that cannot be read, a few at a time. A half-written rule is gone after the next one
// or two commits. A rule that stays for the grace period, through all commits, is the subject's format.
const (
	lateAfter   = 2 * time.Second
	doubtPeriod = time.Second
	grace       = 5 * time.Second
)

// doubts are the unreadable rules that the reading goroutine found.
type doubts struct {
	examined time.Time
	// stays maps ports to their unreadable rule, and the time since when each check found it.
	stays map[*port]stay
}

type stay struct {
	rule  string
	since time.Time
}

// doubt checks late ports.
func (w *Watcher) doubt(now time.Time) {
	if w.unrecognised != nil || now.Sub(w.examined) < max(doubtPeriod, blindFactor*w.cost) {
		return
	}
	few, _ := w.order()
	w.mu.Lock()
	late := few[:0]
	for _, p := range few {
		if len(p.queue) > 0 && now.Sub(p.queue[0].asked) >= lateAfter {
			late = append(late, p)
		}
	}
	w.mu.Unlock()
	if len(late) == 0 {
		w.stays = nil
		return
	}
	w.examined = now
	look, err := w.reader.Look()
	if err != nil {
		return // ignored here: step reports read errors
	}
	defer look.Close()
	found := map[*port]stay{}
	for _, p := range late {
		rule, err := look.Unrecognised(p.family, p.ServicePortName)
		if err != nil || rule == "" {
			continue
		}
		s, before := w.stays[p]
		if !before || s.rule != rule {
			s = stay{rule, now}
		}
		found[p] = s
		if lasted := now.Sub(s.since); lasted >= grace {
			w.unrecognised = &Unrecognised{Service: fmt.Sprintf("%s (%s, %s)", p.ServicePortName, p.Protocol, p.family), Rule: rule, Lasted: lasted}
			close(w.unreadable)
			w.opts.Failed(w.unrecognised)
			return
		}
	}
	w.stays = found
}
