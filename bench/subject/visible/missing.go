package visible

import "time"

// MissingSince returns when the oldest change that is not visible was made; zero if all changes are visible.
func (w *Watcher) MissingSince() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	var oldest time.Time
	for _, p := range w.listed {
		for _, a := range p.queue {
			for _, c := range a.changes {
				if oldest.IsZero() || c.made.Before(oldest) {
					oldest = c.made
				}
			}
		}
	}
	return oldest
}
