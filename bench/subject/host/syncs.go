package host

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/proxier"
	"synclab/proxier/iptables"
)

// syncs counts the syncs of a repetition.
type syncs struct {
	mu  sync.Mutex
	seq map[corev1.IPFamily]int // number of a family's last sync
}

// number returns the number of a sync among those of its family in the repetition. A restarted proxier would count from
// 1 again.
func (s *syncs) number(family corev1.IPFamily) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seq == nil {
		s.seq = map[corev1.IPFamily]int{}
	}
	s.seq[family]++
	return s.seq[family]
}

// onSync records one sync. The proxier calls it from the goroutine of the family that synced.
func (r *Host) onSync(s proxier.Sync) {
	if errors.Is(s.Err, context.Canceled) {
		return // the proxier was stopped: no failure of the sync
	}
	r.reported(s)
	r.tellSync(s.Written, s.Finished)
	at := raw.Record{
		At: s.Finished.Sub(r.Started).Seconds(), Sync: r.syncs.number(s.Family), Kind: string(s.Kind), Family: string(s.Family),
	}
	// Also without a difference: the previous sync may have written the changes and failed after that.
	for _, due := range s.TriggerTimes {
		if s.Err == nil && !r.Reacting.Load() { // a reaction is measured from outside
			r.RecordAs(at, raw.ChangeSynced, s.Written.Sub(due).Seconds())
		}
	}
	if s.Err == nil && len(s.Runs) > 0 {
		r.recordDuration(at, s)
	}
	r.recordPhases(at, s)
}

// reported reports a sync of the lab's own proxier.
func (r *Host) reported(s proxier.Sync) {
	for _, listen := range r.Events.Synced {
		listen(s)
	}
}

// recordDuration records the duration of a sync that wrote rules, and of its tools.
func (r *Host) recordDuration(at raw.Record, s proxier.Sync) {
	duration := raw.PartialSync
	if s.Kind == proxier.Full {
		duration = raw.FullSync
	}
	r.RecordAs(at, duration, s.Duration().Seconds())
	r.recordTools(at, s.Runs, nil)
}

// recordPhases records what only the proxier itself knows of one of its syncs.
func (r *Host) recordPhases(at raw.Record, s proxier.Sync) {
	r.RecordAs(at, raw.Backlog, float64(s.Pending+s.Changes))
	if s.Err != nil {
		failed := at
		failed.Error = s.Err.Error()
		r.failed.add(failed.Error)
		r.RecordAs(failed, raw.SyncFailed, 1)
		r.Messages.Send(pass.Message{Note: "sync failed, will be retried: " + failed.Error})
		return
	}
	for _, refused := range s.Refused {
		r.Messages.Send(pass.Message{Note: "rules refused: service port " + refused.Port.String() + ": " + refused.Err.Error()})
	}
	if len(s.Runs) == 0 {
		return // nothing differed
	}
	if !s.Queued.IsZero() {
		r.RecordAs(at, raw.Queue, s.Started.Sub(s.Queued).Seconds())
	}
	r.RecordAs(at, raw.Plan, s.Plan.Seconds())
	r.RecordAs(at, raw.Encode, s.Encode.Seconds())
	if s.Jumps > 0 {
		r.RecordAs(at, raw.Jumps, s.Jumps.Seconds())
	}
	r.RecordAs(at, raw.Written, s.Written.Sub(s.Started).Seconds())
	r.RecordAs(at, raw.Changes, float64(s.Changes))
	if r.About.Nftables() {
		return // Installed adds rules and elements there; Count has both
	}
	for _, table := range []iptables.Table{iptables.NAT, iptables.Filter} {
		place := at
		place.Table = string(table)
		r.RecordAs(place, raw.Rules, float64(s.Installed[table].Rules))
		r.RecordAs(place, raw.Chains, float64(s.Installed[table].Chains))
	}
}

// recordTools records the cost of the tools of one sync: those that wrote rules, and others, which only read.
func (r *Host) recordTools(at raw.Record, wrote, others []iptables.Run) {
	var wall, user, system float64
	var restores, sent int
	var peak int64
	for _, run := range wrote {
		if run.ExitCode != 0 { // the time until a tool fails says nothing about the time of a write
			r.RecordAs(at, raw.RestoreRefused, run.Wall.Seconds())
			continue
		}
		wall += run.Wall.Seconds()
		restores++
	}
	for _, run := range slices.Concat(wrote, others) {
		user += run.User.Seconds()
		system += run.System.Seconds()
		sent += run.Bytes
		peak = max(peak, run.PeakRSS)
	}
	if restores > 0 {
		r.RecordAs(at, raw.Restore, wall)
		r.RecordAs(at, raw.Restores, float64(restores))
		var read time.Duration
		for _, run := range others {
			read += run.Wall
		}
		if r.About.HasTools() {
			r.RecordAs(at, raw.Listing, read.Seconds())
		}
	}
	r.RecordAs(at, raw.ToolUser, user)
	r.RecordAs(at, raw.ToolSys, system)
	if sent > 0 || restores == 0 { // no input for tools that take their rules as arguments
		r.RecordAs(at, raw.RestoreBytes, float64(sent))
	}
	if peak > 0 { // netlink has no child process
		r.RecordAs(at, raw.ChildPeakRSS, float64(peak))
	}
}
