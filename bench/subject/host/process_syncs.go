package host

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/process"
	"synclab/bench/lab/shim"
	"synclab/bench/raw"
	"synclab/proxier"
	"synclab/proxier/iptables"
)

// processSyncs detects the syncs of a process. Its sources are the tools' calls that the shim reports, and the metrics.
// It reads the metrics after a tool has ended and while idle waits. The lab's own proxier also writes a log of its
// syncs.
type processSyncs struct {
	*processSubject
	read   process.Syncs
	wanted chan struct{} // idle waits for a reading

	mu      sync.Mutex
	calls   []shim.Call     // not assigned to a sync yet
	wrote   bool            // a call ever wrote rules
	mixed   map[string]bool // families with calls that were taken with those of other syncs
	next    int64           // offset in the shim's file
	synced  map[string]int
	samples process.Samples // the last reading; nil: the subject has no metrics, or not yet
	changed chan struct{}   // closed after each reading
	// begun and done number the readings.
	begun, done int
}

// A sync ends soon after its last write. Its metrics are read firstRead after that. Until they show the sync, they are
// read again after pauses that double up to readInterval. A reading costs kube-proxy some 3 ms of CPU.
const (
	firstRead    = 5 * time.Millisecond
	readInterval = 100 * time.Millisecond
)

// noMetricsAfter is the time after its start in which a subject of another project must serve metrics, if it has any.
const noMetricsAfter = 2 * time.Second

func newProcessSyncs(s *processSubject) *processSyncs {
	return &processSyncs{processSubject: s, wanted: make(chan struct{}, 1), synced: map[string]int{}, mixed: map[string]bool{}, changed: make(chan struct{})}
}

// run handles calls and reads metrics until ctx ends.
func (o *processSyncs) run(ctx context.Context) {
	ended, err := o.Shim.Calls(ctx, o.Fail)
	if err != nil {
		o.Fail(err)
		return
	}
	wrote := make(chan struct{}, 1)
	o.watch.Go(func() {
		for call := range ended {
			if call.Start.Before(o.began) {
				continue // of the previous process
			}
			o.Harness.Watcher.ToolEnded(call.End)
			if o.About.Writes(call) {
				select {
				case wrote <- struct{}{}:
				default:
				}
			}
		}
	})
	var tick <-chan time.Time
	if !o.About.HasMetrics {
		ticker := o.Clock.NewTicker(readInterval)
		defer ticker.Stop()
		tick = ticker.C()
	}
	tool := false
	for {
		if !tool {
			select {
			case <-ctx.Done():
				return
			case <-wrote:
				tool = true
			case <-o.Harness.log.recordable:
			case <-o.wanted:
			case <-tick:
				if !o.silent() {
					continue
				}
			}
		}
		var pause time.Duration
		if tool {
			pause = firstRead
		}
		for more := true; more; more = o.pending() {
			// When the next sync writes, the previous one is over. Read its metrics before the next one ends.
			next, err := o.pause(ctx, pause, wrote)
			if err != nil {
				return
			}
			o.reading(ctx)
			if next {
				pause = 0
			}
			pause = min(max(2*pause, firstRead), readInterval)
		}
		var err error
		if tool, err = o.pause(ctx, readInterval, wrote); err != nil { // idle requests a reading again at once
			return
		}
	}
}

// pause returns after d, or when a tool has written.
func (o *processSyncs) pause(ctx context.Context, d time.Duration, wrote <-chan struct{}) (tool bool, err error) {
	timer := o.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-wrote:
		return true, nil
	case <-timer.C():
		return false, nil
	}
}

// silent reports whether only metrics can show the subject's syncs: it has run no tool that writes.
func (o *processSyncs) silent() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.About.HasMetrics && !o.wrote
}

// unread reports whether calls that belong to no sync yet wrote rules. Calls that only read also happen between syncs: a
// proxier checks now and then that its rules still exist.
func (o *processSyncs) unread() bool { return slices.ContainsFunc(o.calls, o.About.Writes) }

func (o *processSyncs) pending() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unread()
}

// reading reads the metrics once and records the syncs since the last reading.
func (o *processSyncs) reading(ctx context.Context) {
	o.mu.Lock()
	o.begun++
	number := o.begun
	o.mu.Unlock()
	samples, err := process.Metrics(ctx, MetricsURL)
	if err == nil {
		o.Harness.readings.n.Add(1)
	}
	own := o.Harness.log.take()
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() { close(o.changed); o.changed, o.done = make(chan struct{}), number }()
	o.readCalls()
	if err != nil || !o.About.HasMetrics && !speaksOfSyncs(samples) {
		o.samples = nil
		if !o.About.HasMetrics && o.Clock.Since(o.began) > noMetricsAfter {
			o.recordCalls(raw.Record{}, o.takeCalls(func(shim.Call) bool { return true }))
		}
		return
	}
	o.samples = samples
	syncs := o.read.Next(samples)
	for _, sync := range syncs {
		o.synced[sync.Family] += sync.Count
	}
	if o.About.Own {
		o.recordOwn(own)
		return
	}
	o.recordRead(syncs)
}

// recordRead records the syncs between two readings of the metrics.
func (o *processSyncs) recordRead(syncs []process.Sync) {
	byFamily := map[string][]process.Sync{}
	for _, sync := range syncs {
		byFamily[sync.Family] = append(byFamily[sync.Family], sync)
	}
	for _, family := range slices.Sorted(maps.Keys(byFamily)) {
		if family != "" && !slices.Contains(o.Families, corev1.IPFamily(family)) {
			// kube-proxy writes both families if the kernel has both; only the scenario's are measured.
			o.takeCalls(func(c shim.Call) bool { return string(c.Family()) == family })
			continue
		}
		if of := byFamily[family]; len(of) == 1 && of[0].Count == 1 {
			o.recordOne(of[0])
		} else {
			o.recordSeveral(of)
		}
	}
}

// readCalls reads the shim's new records. A sync's calls are recorded before the sync ends and its metrics show it.
func (o *processSyncs) readCalls() {
	calls, next, err := o.Shim.Read(o.next)
	if err != nil {
		o.Fail(err)
	}
	o.next = next
	for _, call := range calls {
		// Skip calls of the previous process, and of a family that the subject only cleans up: it has no syncs.
		if of := call.Family(); !call.Start.Before(o.began) && (of == "" || slices.Contains(o.Families, of)) {
			o.calls = append(o.calls, call)
			o.wrote = o.wrote || o.About.Writes(call)
		}
	}
}

// speaksOfSyncs reports whether metrics have kube-proxy's names.
func speaksOfSyncs(samples process.Samples) bool {
	for name := range samples {
		if strings.HasPrefix(name, "kubeproxy_sync_") {
			return true
		}
	}
	return false
}

// ofFamily takes the calls that ended by then and that belong, or may belong, to a family.
func (o *processSyncs) ofFamily(family string, ended time.Time) []shim.Call {
	return o.takeCalls(func(c shim.Call) bool {
		of := string(c.Family())
		return !c.End.After(ended) && (of == "" || family == "" || of == family)
	})
}

// recordSeveral counts the syncs of a family between two readings. The metrics cannot separate their durations and
// calls.
func (o *processSyncs) recordSeveral(syncs []process.Sync) {
	base := raw.Record{Family: syncs[0].Family}
	if len(syncs) == 1 {
		base.Kind = syncs[0].Kind
	}
	n := 0
	for _, sync := range syncs {
		n += sync.Count
	}
	for range n {
		base.Sync = o.Host.syncs.number(corev1.IPFamily(base.Family))
	}
	failed := min(syncs[0].Failed, n)
	for range failed {
		o.recordFailed(base, "its metrics count a failure")
	}
	if n > failed {
		o.RecordAs(base, raw.SyncsNotSeparable, float64(n-failed))
	}
	o.ofFamily(base.Family, o.Clock.Now())
	o.mixed[base.Family] = true
}

// recordOne records the only sync of a family between two readings. Its duration is exact, with or without its calls.
func (o *processSyncs) recordOne(sync process.Sync) {
	now := o.Clock.Now()
	base := raw.Record{Sync: o.Host.syncs.number(corev1.IPFamily(sync.Family)), Kind: sync.Kind, Family: sync.Family}
	calls := o.ofFamily(sync.Family, now)
	mixed := o.mixed[sync.Family] // its calls may have been taken with those of earlier syncs
	first, last := o.writes(calls)
	o.mixed[sync.Family] = false
	// Before its first sync, a subject may remove rules of earlier programs.
	if last.End.Sub(first.Start) > sync.Total && o.synced[sync.Family] > sync.Count {
		// Some calls belong to another sync, which may still run.
		calls, last, mixed = nil, shim.Call{}, true
		o.mixed[sync.Family] = true
	}
	wrote := !last.End.IsZero()
	if wrote { // its last write was near its end, the reading later
		base.At = last.End.Sub(o.Started).Seconds()
	}
	counted, refused := sync.Failed > 0, wrote && last.ExitCode != 0
	switch {
	case !wrote && !mixed && o.wrote && !counted:
		return // it wrote nothing
	case wrote && counted != refused && o.About.HasMetrics:
		// Either the failure or the tool belongs to a sync that still runs.
		o.RecordAs(base, raw.SyncsNotSeparable, 1)
		o.mixed[sync.Family] = true
		return
	case refused:
		o.recordFailed(base, fmt.Sprintf("%s: exit status %d", last.Tool, last.ExitCode))
	case counted:
		o.recordFailed(base, "its metrics count a failure")
	default:
		o.recordTook(base, sync.Total)
		o.syncWindow(sync, last.End, now)
	}
	o.recordCalls(base, during(calls, last, sync.Total))
}

// syncWindow notes the time of a sync for the profile. Its end is after its last write; kube-proxy's metrics have it, if
// the next sync has not ended yet.
func (o *processSyncs) syncWindow(sync process.Sync, end, now time.Time) {
	if at, ok := o.samples.Value(lastSynced, "ip_family", sync.Family); ok {
		if synced := time.UnixMicro(int64(at * 1e6)); synced.After(end) && synced.Before(now) {
			end = synced
		}
	}
	if !end.IsZero() {
		o.window(sync.Kind, end.Add(-sync.Total), end)
	}
}

// writes returns the first and the last of the calls that write rules.
func (o *processSyncs) writes(calls []shim.Call) (first, last shim.Call) {
	for _, c := range calls {
		if !o.About.Writes(c) {
			continue
		}
		if first.Start.IsZero() || c.Start.Before(first.Start) {
			first = c
		}
		if c.End.After(last.End) {
			last = c
		}
	}
	return first, last
}

// during drops the calls that ran before a sync began. The sync's end is its last write.
func during(calls []shim.Call, last shim.Call, took time.Duration) []shim.Call {
	return slices.DeleteFunc(calls, func(c shim.Call) bool { return c.Start.Before(last.End.Add(-took)) })
}

func (o *processSyncs) recordFailed(base raw.Record, why string) {
	o.failed.add(why)
	base.Error = why
	o.RecordAs(base, raw.SyncFailed, 1)
}

func (o *processSyncs) recordTook(base raw.Record, took time.Duration) {
	metric := raw.PartialSync
	if base.Kind == process.Full {
		metric = raw.FullSync
	}
	o.RecordAs(base, metric, took.Seconds())
}

// recordOwn records syncs that the lab's own proxier reported.
func (o *processSyncs) recordOwn(syncs []proxier.Sync) {
	for _, s := range syncs {
		if !slices.Contains(o.Families, s.Family) {
			o.takeCalls(func(c shim.Call) bool { return string(c.Family()) == string(s.Family) })
			continue
		}
		base := raw.Record{
			At: s.Finished.Sub(o.Started).Seconds(), Sync: o.Host.syncs.number(s.Family), Kind: string(s.Kind), Family: string(s.Family),
		}
		if s.Err == nil && len(s.Runs) > 0 {
			o.window(string(s.Kind), s.Started, s.Finished)
		}
		switch {
		case s.Err == nil && len(s.Runs) > 0 && o.About.HasTools():
			calls := o.ofFamily(base.Family, s.Finished)
			_, last := o.writes(calls)
			o.recordTook(base, s.Duration())
			o.recordCalls(base, during(calls, last, s.Duration()))
		case s.Err == nil && len(s.Runs) > 0:
			o.recordDuration(base, s)
		case s.Err != nil:
			o.recordCalls(base, o.ofFamily(base.Family, s.Finished))
		}
		o.recordPhases(base, s)
	}
}

// takeCalls removes calls from those that belong to no sync yet.
func (o *processSyncs) takeCalls(of func(shim.Call) bool) []shim.Call {
	var taken []shim.Call
	o.calls = slices.DeleteFunc(o.calls, func(c shim.Call) bool {
		if of(c) {
			taken = append(taken, c)
			return true
		}
		return false
	})
	return taken
}

// recordCalls records the cost of the tools of one sync.
func (o *processSyncs) recordCalls(base raw.Record, calls []shim.Call) {
	if len(calls) == 0 {
		return
	}
	var wrote, others []iptables.Run
	var ended time.Time
	for _, call := range calls {
		run := iptables.Run{Tool: call.Tool, Wall: call.Duration(), User: call.User, System: call.System,
			Bytes: int(max(call.Stdin, 0)), PeakRSS: call.PeakRSS, ExitCode: call.ExitCode}
		if o.About.Writes(call) {
			wrote = append(wrote, run)
		} else {
			others = append(others, run)
		}
		if call.End.After(ended) {
			ended = call.End
		}
	}
	at := base
	if at.At == 0 {
		at.At = ended.Sub(o.Started).Seconds()
	}
	o.recordTools(at, wrote, others)
	o.RecordAs(base, raw.ToolCalls, float64(len(calls)))
}

// The metrics with the times of the last request for a sync and of the last sync (seconds since 1970).
const (
	lastQueued = "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds"
	lastSynced = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"
)

// idle waits until the process has synced every family at least once and, by its metrics, has nothing left to do.
func (o *processSyncs) idle(ctx context.Context) error {
	o.mu.Lock()
	before := o.begun
	o.mu.Unlock()
	for {
		o.mu.Lock()
		state, changed := o.busy(), o.changed
		if o.done <= before { // earlier readings do not include later changes
			state = cmp.Or(state, "its metrics were not read yet")
		}
		o.mu.Unlock()
		if state == "" {
			return nil
		}
		select {
		case o.wanted <- struct{}{}:
		default:
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", state, context.Cause(ctx))
		}
	}
}

// busy returns why the subject is not idle; empty: it is.
func (o *processSyncs) busy() string {
	if o.samples == nil {
		if !o.About.HasMetrics && o.Clock.Since(o.began) > noMetricsAfter {
			return ""
		}
		return "it serves no metrics at " + MetricsURL
	}
	if o.unread() {
		return "a tool has written rules since its last sync"
	}
	for _, family := range o.Families {
		if o.synced[string(family)] == 0 && o.synced[""] == 0 {
			return fmt.Sprintf("it has not synced %s yet", family)
		}
		queued, reported := o.samples.Value(lastQueued, "ip_family", string(family))
		synced, _ := o.samples.Value(lastSynced, "ip_family", string(family))
		if reported && queued > synced {
			return fmt.Sprintf("its metrics show that a sync of %s is due", family)
		}
	}
	return ""
}
