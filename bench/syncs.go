package bench

import (
	"context"
	"errors"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier"
	"synclab/proxier/iptables"
)

// syncs counts the syncs of a repetition.
type syncs struct {
	mu  sync.Mutex
	seq map[corev1.IPFamily]int // of a family's last sync
}

// number gives a sync its place among those of its family in the repetition: a proxier that is started again counts its
// own from 1 again.
func (s *syncs) number(family corev1.IPFamily) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seq == nil {
		s.seq = map[corev1.IPFamily]int{}
	}
	s.seq[family]++
	return s.seq[family]
}

// onSync turns one sync into records. It is called by the proxier, from the goroutine of the family that synced.
func (r *repetition) onSync(s proxier.Sync) {
	if errors.Is(s.Err, context.Canceled) {
		return // it was not the sync that failed: the proxier was stopped
	}
	r.told(s)
	r.tellSync(s.Written, s.Finished)
	seconds := Record{
		At: s.Finished.Sub(r.started).Seconds(), Sync: r.syncs.number(s.Family), Kind: string(s.Kind), Family: string(s.Family), Unit: "s",
	}
	// Also when nothing differed: the sync before may have written the changes, and failed after that.
	for _, due := range s.TriggerTimes {
		if s.Err == nil && !r.reacting.Load() { // a reaction is seen from outside
			r.recordAs(seconds, ChangeSynced, s.Written.Sub(due).Seconds())
		}
	}
	if s.Err == nil && len(s.Runs) > 0 {
		r.recordDuration(seconds, s)
	}
	r.recordPhases(seconds, s)
}

// recordDuration records how long a sync took that wrote rules, and what wrote them.
func (r *repetition) recordDuration(seconds Record, s proxier.Sync) {
	duration := PartialSync
	if s.Kind == proxier.Full {
		duration = FullSync
	}
	r.recordAs(seconds, duration, s.Duration().Seconds())
	r.recordTools(seconds, s.Runs, nil)
}

// recordPhases records what only the proxier itself can tell of one of its syncs.
func (r *repetition) recordPhases(seconds Record, s proxier.Sync) {
	count := seconds
	count.Unit = "count"
	r.recordAs(count, Backlog, float64(s.Pending+s.Changes))
	if s.Err != nil {
		failed := count
		failed.Error = s.Err.Error()
		r.recordAs(failed, SyncFailed, 1)
		r.say.message(message{Note: "sync failed, will be retried: " + failed.Error})
		return
	}
	for _, refused := range s.Refused {
		r.say.message(message{Note: "rules refused: service port " + refused.Port.String() + ": " + refused.Err.Error()})
	}
	if len(s.Runs) == 0 {
		return // nothing differed
	}
	if !s.Queued.IsZero() {
		r.recordAs(seconds, Queue, s.Started.Sub(s.Queued).Seconds())
	}
	r.recordAs(seconds, Plan, s.Plan.Seconds())
	r.recordAs(seconds, Encode, s.Encode.Seconds())
	if s.Jumps > 0 {
		r.recordAs(seconds, Jumps, s.Jumps.Seconds())
	}
	r.recordAs(seconds, Written, s.Written.Sub(s.Started).Seconds())
	r.recordAs(count, Changes, float64(s.Changes))
	if r.about.Backend == proxier.Nftables {
		return // where rules and elements count together: apart, they are counted by the kernel
	}
	for _, table := range []iptables.Table{iptables.NAT, iptables.Filter} {
		place := count
		place.Table = string(table)
		r.recordAs(place, Rules, float64(s.Installed[table].Rules))
		r.recordAs(place, Chains, float64(s.Installed[table].Chains))
	}
}

// recordTools records what the tools of one sync cost: those that wrote rules, and others, which only read.
func (r *repetition) recordTools(seconds Record, wrote, others []iptables.Run) {
	count, bytes := seconds, seconds
	count.Unit, bytes.Unit = "count", "B"
	var wall, user, system float64
	var restores, sent int
	var peak int64
	for _, run := range wrote {
		if run.ExitCode != 0 { // how long until a tool gives up says nothing of how long it takes to write
			r.recordAs(seconds, RestoreRefused, run.Wall.Seconds())
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
		r.recordAs(seconds, Restore, wall)
		r.recordAs(count, Restores, float64(restores))
	}
	r.recordAs(seconds, ToolUser, user)
	r.recordAs(seconds, ToolSys, system)
	if sent > 0 || restores == 0 { // tools that take their rules as arguments are sent nothing
		r.recordAs(bytes, RestoreBytes, float64(sent))
	}
	if peak > 0 { // netlink has no child
		r.recordAs(bytes, ChildPeakRSS, float64(peak))
	}
}
