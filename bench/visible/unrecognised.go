package visible

import (
	"fmt"
	"time"
)

// Unrecognised is the error of a Watcher that cannot read the rules that the kernel has for a Service port: waiting for it
// would not end.
type Unrecognised struct {
	Service string // port and family
	Rule    string // and where it stands
	Lasted  time.Duration
}

func (u *Unrecognised) Error() string {
	return fmt.Sprintf("service %s: unrecognised rule, there for %v: %s (teach package bench/visible to read it, or leave this subject out)",
		u.Service, u.Lasted.Round(time.Second), u.Rule)
}

// Ports that are late are examined for rules that cannot be read, a few at a time. A rule that is half written is gone with
// the next commit or the one after; one that stays for the grace, whatever else is committed, is how the subject writes.
const (
	lateAfter   = 2 * time.Second
	doubtPeriod = time.Second
	grace       = 5 * time.Second
)

// doubts are what the goroutine that looks found unreadable.
type doubts struct {
	examined time.Time
	// stays is by port: the rule, and since when it was found there at each time.
	stays map[*port]stay
}

type stay struct {
	rule  string
	since time.Time
}

// doubt examines ports that are late.
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
	look, err := w.dialect.Look()
	if err != nil {
		return // as with any other look, see step
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
