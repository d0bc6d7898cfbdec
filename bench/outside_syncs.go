package bench

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/process"
	"synclab/bench/shim"
	"synclab/proxier"
	"synclab/proxier/iptables"
)

// outsideSyncs sees the syncs of a process: its tools as the shim tells of them, its metrics, which are read after a
// tool has ended and while somebody waits, and for the lab's own proxier the log of its syncs.
type outsideSyncs struct {
	*outside
	read   process.Syncs
	wanted chan struct{} // somebody waits for a reading

	mu      sync.Mutex
	calls   []shim.Call // of no sync yet
	next    int64       // place in the shim's file
	synced  map[string]int
	samples process.Samples // the last reading; nil: the subject has no metrics, or not yet
	changed chan struct{}   // closed after each reading
	// begun and done number the readings.
	begun, done int
}

// readInterval is how often metrics are read while there is something to learn from them.
const readInterval = 100 * time.Millisecond

// noMetricsAfter is how long after its start a subject that is not known may take to serve metrics, if it has any.
const noMetricsAfter = 2 * time.Second

func newOutsideSyncs(s *outside) *outsideSyncs {
	return &outsideSyncs{outside: s, wanted: make(chan struct{}, 1), synced: map[string]int{}, changed: make(chan struct{})}
}

// run takes in calls and reads metrics until ctx ends.
func (o *outsideSyncs) run(ctx context.Context) {
	ended, err := o.shim.Calls(ctx)
	if err != nil {
		o.fail(err)
		return
	}
	calls := make(chan struct{}, 1)
	go func() {
		for call := range ended {
			if call.Start.Before(o.began) {
				continue // of the process before this one
			}
			o.tunnel.visible.ToolEnded(call.End)
			select {
			case calls <- struct{}{}:
			default:
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-calls:
		case <-o.tunnel.log.told:
		case <-o.wanted:
		}
		for first := true; first || o.pending(); first = false {
			o.reading(ctx)
			if wait(ctx, readInterval) != nil {
				return
			}
		}
	}
}

// written says whether rules were written by calls that belong to no sync yet. Calls that only read come between syncs
// too: a proxier looks now and then whether its rules are still there.
func (o *outsideSyncs) written() bool { return slices.ContainsFunc(o.calls, o.about.writes) }

func (o *outsideSyncs) pending() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.written()
}

// reading reads the metrics once and records what has happened since the last time.
func (o *outsideSyncs) reading(ctx context.Context) {
	o.mu.Lock()
	o.begun++
	number := o.begun
	o.mu.Unlock()
	samples, err := process.Metrics(ctx, metricsURL)
	own := o.tunnel.log.take()
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() { close(o.changed); o.changed, o.done = make(chan struct{}), number }()
	o.readCalls()
	if err != nil || o.about.Proxier == Exec && !speaksOfSyncs(samples) {
		o.samples = nil
		if o.about.Proxier == Exec && o.clock.Since(o.began) > noMetricsAfter {
			o.recordCalls(Record{}, o.takeCalls(func(shim.Call) bool { return true }))
		}
		return
	}
	o.samples = samples
	syncs := o.read.Next(samples)
	for _, sync := range syncs {
		o.synced[sync.Family] += sync.Count
	}
	if o.about.Proxier == Synclab {
		o.recordOwn(own)
		return
	}
	several := map[string]int{}
	for _, sync := range syncs {
		several[sync.Family] += sync.Count
	}
	for _, sync := range syncs {
		if sync.Family != "" && !slices.Contains(o.families, corev1.IPFamily(sync.Family)) {
			// kube-proxy keeps both families wherever the kernel has both; the scenario's are what is measured.
			o.takeCalls(func(c shim.Call) bool { return string(c.Family()) == sync.Family })
			continue
		}
		if several[sync.Family] > 1 {
			o.recordSeveral(sync)
			continue
		}
		for range sync.Count {
			base := Record{Sync: o.repetition.syncs.number(corev1.IPFamily(sync.Family)), Kind: sync.Kind, Family: sync.Family}
			o.recordSync(base, sync.Duration, o.clock.Now())
		}
	}
}

// readCalls takes in the calls that were written down until now: those of a sync are, before it ends and says so.
func (o *outsideSyncs) readCalls() {
	calls, next, err := o.shim.Read(o.next)
	if err != nil {
		o.fail(err)
	}
	o.next = next
	for _, call := range calls {
		if !call.Start.Before(o.began) { // else of the process before this one
			o.calls = append(o.calls, call)
		}
	}
}

// speaksOfSyncs says whether metrics are like kube-proxy's.
func speaksOfSyncs(samples process.Samples) bool {
	for name := range samples {
		if strings.HasPrefix(name, "kubeproxy_sync_") {
			return true
		}
	}
	return false
}

// ofFamily are the calls that ended until then and are of a family, or may be.
func (o *outsideSyncs) ofFamily(family string, ended time.Time) []shim.Call {
	return o.takeCalls(func(c shim.Call) bool {
		of := string(c.Family())
		return !c.End.After(ended) && (of == "" || family == "" || of == family)
	})
}

// recordSeveral records syncs of a family between two readings: which call was of which cannot be told.
func (o *outsideSyncs) recordSeveral(sync process.Sync) {
	metric := PartialSync
	if sync.Kind == process.Full {
		metric = FullSync
	}
	for i := range sync.Count {
		base := Record{Sync: o.repetition.syncs.number(corev1.IPFamily(sync.Family)), Kind: sync.Kind, Family: sync.Family, Unit: "s"}
		o.recordAs(base, metric, sync.Duration.Seconds())
		if i == 0 {
			base.Unit, base.Kind = "", "" // of none of them alone
			o.recordCalls(base, o.ofFamily(sync.Family, o.clock.Now()))
		}
	}
}

// recordSync records a sync and what the tools that ended until then cost.
func (o *outsideSyncs) recordSync(base Record, took time.Duration, ended time.Time) {
	calls := o.ofFamily(base.Family, ended)
	// What ran before the sync began is no part of it. Its last write was near its end.
	var last shim.Call
	for _, c := range calls {
		if o.about.writes(c) && c.End.After(last.End) {
			last = c
		}
	}
	calls = slices.DeleteFunc(calls, func(c shim.Call) bool { return c.Start.Before(last.End.Add(-took)) })
	if base.At == 0 && !last.End.IsZero() { // the metrics were read some time after the sync
		base.At = last.End.Sub(o.started).Seconds()
	}
	if last.ExitCode != 0 && o.about.Proxier != Synclab { // metrics count syncs that failed, too
		failed := base
		failed.Unit, failed.Error = "count", fmt.Sprintf("%s: exit status %d", last.Tool, last.ExitCode)
		o.recordAs(failed, SyncFailed, 1)
	} else {
		seconds, metric := base, PartialSync
		seconds.Unit = "s"
		if base.Kind == process.Full {
			metric = FullSync
		}
		o.recordAs(seconds, metric, took.Seconds())
	}
	o.recordCalls(base, calls)
}

// recordOwn records syncs that the lab's own proxier told of.
func (o *outsideSyncs) recordOwn(syncs []proxier.Sync) {
	for _, s := range syncs {
		base := Record{
			At: s.Finished.Sub(o.started).Seconds(), Sync: o.repetition.syncs.number(s.Family), Kind: string(s.Kind), Family: string(s.Family),
		}
		switch {
		case s.Err == nil && len(s.Runs) > 0 && o.about.hasTools():
			o.recordSync(base, s.Duration(), s.Finished)
		case s.Err == nil && len(s.Runs) > 0:
			seconds := base
			seconds.Unit = "s"
			o.recordDuration(seconds, s)
		case s.Err != nil:
			o.recordCalls(base, o.ofFamily(base.Family, s.Finished))
		}
		base.Unit = "s"
		o.recordPhases(base, s)
	}
}

// hasTools says whether the subject writes rules by tools, which the shim sees.
func (s Subject) hasTools() bool {
	return s.Proxier != Synclab || s.Backend == proxier.Iptables
}

// writes says whether a call writes rules of the subject's backend.
func (s Subject) writes(c shim.Call) bool {
	asks := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return slices.Contains(c.Args, word) })
	}
	if c.Tool == "nft" {
		return s.Backend != proxier.Iptables && asks("-f", "--file") && !asks("-c", "--check")
	}
	return s.Backend != proxier.Nftables && strings.HasSuffix(c.Tool, "-restore") && !asks("-t", "--test", "-V", "--version")
}

// takeCalls removes calls from those that belong to no sync yet.
func (o *outsideSyncs) takeCalls(of func(shim.Call) bool) []shim.Call {
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

// recordCalls records what the tools of one sync cost.
func (o *outsideSyncs) recordCalls(base Record, calls []shim.Call) {
	if len(calls) == 0 {
		return
	}
	var wrote, others []iptables.Run
	var ended time.Time
	for _, call := range calls {
		run := iptables.Run{Tool: call.Tool, Wall: call.Duration(), User: call.User, System: call.System,
			Bytes: int(max(call.Stdin, 0)), PeakRSS: call.PeakRSS, ExitCode: call.ExitCode}
		if o.about.writes(call) {
			wrote = append(wrote, run)
		} else {
			others = append(others, run)
		}
		if call.End.After(ended) {
			ended = call.End
		}
	}
	seconds, count := base, base
	seconds.Unit, count.Unit = "s", "count"
	if base.At == 0 {
		seconds.At = ended.Sub(o.started).Seconds()
	}
	o.recordTools(seconds, wrote, others)
	o.recordAs(count, ToolCalls, float64(len(calls)))
}

// The metrics in which a subject says when it was last asked to sync, and when it last had (seconds since 1970).
const (
	lastQueued = "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds"
	lastSynced = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"
)

// idle waits until the process has synced every family at least once and has nothing left to do, as far as it says.
func (o *outsideSyncs) idle(ctx context.Context) error {
	o.mu.Lock()
	before := o.begun
	o.mu.Unlock()
	for {
		o.mu.Lock()
		state, changed := o.busy(), o.changed
		if o.done <= before { // what was read earlier says nothing of changes since then
			state = cmp.Or(state, "it was not asked yet")
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

// busy says why the subject cannot be taken for idle; empty: it can.
func (o *outsideSyncs) busy() string {
	if o.samples == nil {
		if o.about.Proxier == Exec && o.clock.Since(o.began) > noMetricsAfter {
			return ""
		}
		return "it serves no metrics at " + metricsURL
	}
	if o.written() {
		return "a tool has written rules since its last sync"
	}
	for _, family := range o.families {
		if o.synced[string(family)] == 0 && o.synced[""] == 0 {
			return fmt.Sprintf("it has not synced %s yet", family)
		}
		queued, told := o.samples.Value(lastQueued, "ip_family", string(family))
		synced, _ := o.samples.Value(lastSynced, "ip_family", string(family))
		if told && queued > synced {
			return fmt.Sprintf("its metrics say that a sync of %s is due", family)
		}
	}
	return ""
}
