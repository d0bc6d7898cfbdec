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
	calls   []shim.Call     // of no sync yet
	wrote   bool            // a call ever wrote rules
	mixed   map[string]bool // families some of whose calls were taken with those of other syncs
	next    int64           // place in the shim's file
	synced  map[string]int
	samples process.Samples // the last reading; nil: the subject has no metrics, or not yet
	changed chan struct{}   // closed after each reading
	// begun and done number the readings.
	begun, done int
}

// A sync ends soon after it has written. Its metrics are read firstRead after that, and, until they tell of it, after
// pauses that double up to readInterval. A reading costs kube-proxy some 3 ms of CPU.
const (
	firstRead    = 5 * time.Millisecond
	readInterval = 100 * time.Millisecond
)

// noMetricsAfter is how long after its start a subject that is not known may take to serve metrics, if it has any.
const noMetricsAfter = 2 * time.Second

func newOutsideSyncs(s *outside) *outsideSyncs {
	return &outsideSyncs{outside: s, wanted: make(chan struct{}, 1), synced: map[string]int{}, mixed: map[string]bool{}, changed: make(chan struct{})}
}

// run takes in calls and reads metrics until ctx ends.
func (o *outsideSyncs) run(ctx context.Context) {
	ended, err := o.shim.Calls(ctx, o.fail)
	if err != nil {
		o.fail(err)
		return
	}
	wrote := make(chan struct{}, 1)
	go func() {
		for call := range ended {
			if call.Start.Before(o.began) {
				continue // of the process before this one
			}
			o.tunnel.visible.ToolEnded(call.End)
			if o.about.writes(call) {
				select {
				case wrote <- struct{}{}:
				default:
				}
			}
		}
	}()
	var tick <-chan time.Time
	if o.about.Proxier == Exec {
		ticker := o.clock.NewTicker(readInterval)
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
			case <-o.tunnel.log.told:
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
			// If the next sync has written, the one before it is over, and is read of before this one ends.
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
		if tool, err = o.pause(ctx, readInterval, wrote); err != nil { // who waits asks again at once
			return
		}
	}
}

// pause returns after a time, or when a tool has written.
func (o *outsideSyncs) pause(ctx context.Context, d time.Duration, wrote <-chan struct{}) (tool bool, err error) {
	timer := o.clock.NewTimer(d)
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

// silent says that only metrics tell of the subject's syncs: it has run no tool that writes.
func (o *outsideSyncs) silent() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.about.Proxier == Exec && !o.wrote
}

// unread says whether rules were written by calls that belong to no sync yet. Calls that only read come between syncs
// too: a proxier looks now and then whether its rules are still there.
func (o *outsideSyncs) unread() bool { return slices.ContainsFunc(o.calls, o.about.writes) }

func (o *outsideSyncs) pending() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unread()
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
	o.recordRead(syncs)
}

// recordRead records the syncs between two readings of the metrics.
func (o *outsideSyncs) recordRead(syncs []process.Sync) {
	byFamily := map[string][]process.Sync{}
	for _, sync := range syncs {
		byFamily[sync.Family] = append(byFamily[sync.Family], sync)
	}
	for _, family := range sortedKeys(byFamily) {
		if family != "" && !slices.Contains(o.families, corev1.IPFamily(family)) {
			// kube-proxy keeps both families wherever the kernel has both; the scenario's are what is measured.
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

// readCalls takes in the calls that were written down until now: those of a sync are, before it ends and says so.
func (o *outsideSyncs) readCalls() {
	calls, next, err := o.shim.Read(o.next)
	if err != nil {
		o.fail(err)
	}
	o.next = next
	for _, call := range calls {
		// Else of the process before this one, or of a family that the subject only cleans up: no sync of it will come.
		if of := call.Family(); !call.Start.Before(o.began) && (of == "" || slices.Contains(o.families, of)) {
			o.calls = append(o.calls, call)
			o.wrote = o.wrote || o.about.writes(call)
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

// recordSeveral counts syncs of a family between two readings: how long each took, and which call was of which, cannot be
// told.
func (o *outsideSyncs) recordSeveral(syncs []process.Sync) {
	base := Record{Family: syncs[0].Family, Unit: "count"}
	if len(syncs) == 1 {
		base.Kind = syncs[0].Kind
	}
	n := 0
	for _, sync := range syncs {
		n += sync.Count
	}
	for range n {
		base.Sync = o.repetition.syncs.number(corev1.IPFamily(base.Family))
	}
	failed := min(syncs[0].Failed, n)
	for range failed {
		o.recordFailed(base, "its metrics count a failure")
	}
	if n > failed {
		o.recordAs(base, SyncsNotSeparable, float64(n-failed))
	}
	o.ofFamily(base.Family, o.clock.Now())
	o.mixed[base.Family] = true
}

// recordOne records the only sync of a family between two readings. Its duration is exact, whatever is known of its calls.
func (o *outsideSyncs) recordOne(sync process.Sync) {
	now := o.clock.Now()
	base := Record{Sync: o.repetition.syncs.number(corev1.IPFamily(sync.Family)), Kind: sync.Kind, Family: sync.Family}
	calls := o.ofFamily(sync.Family, now)
	mixed := o.mixed[sync.Family] // its calls may have been taken with those of the syncs before
	first, last := o.writes(calls)
	o.mixed[sync.Family] = false
	// Before its first sync, a subject may remove what others left.
	if last.End.Sub(first.Start) > sync.Total && o.synced[sync.Family] > sync.Count {
		// Some are of another sync, which may still be under way.
		calls, last, mixed = nil, shim.Call{}, true
		o.mixed[sync.Family] = true
	}
	wrote := !last.End.IsZero()
	if wrote { // the metrics were read some time after the sync; its last write was near its end
		base.At = last.End.Sub(o.started).Seconds()
	}
	counted, refused := sync.Failed > 0, wrote && last.ExitCode != 0
	switch {
	case !wrote && !mixed && o.wrote && !counted:
		return // it wrote nothing
	case wrote && counted != refused && o.about.Proxier == KubeProxy:
		// Either the failure or the tool is of a sync that is still under way.
		base.Unit = "count"
		o.recordAs(base, SyncsNotSeparable, 1)
		o.mixed[sync.Family] = true
		return
	case refused:
		o.recordFailed(base, fmt.Sprintf("%s: exit status %d", last.Tool, last.ExitCode))
	case counted:
		o.recordFailed(base, "its metrics count a failure")
	default:
		o.recordTook(base, sync.Total)
	}
	o.recordCalls(base, during(calls, last, sync.Total))
}

// writes gives the first and the last of the calls that write rules.
func (o *outsideSyncs) writes(calls []shim.Call) (first, last shim.Call) {
	for _, c := range calls {
		if !o.about.writes(c) {
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

// during leaves out what ran before a sync began, of which the last write is known.
func during(calls []shim.Call, last shim.Call, took time.Duration) []shim.Call {
	return slices.DeleteFunc(calls, func(c shim.Call) bool { return c.Start.Before(last.End.Add(-took)) })
}

func (o *outsideSyncs) recordFailed(base Record, why string) {
	base.Unit, base.Error = "count", why
	o.recordAs(base, SyncFailed, 1)
}

func (o *outsideSyncs) recordTook(base Record, took time.Duration) {
	metric := PartialSync
	if base.Kind == process.Full {
		metric = FullSync
	}
	base.Unit = "s"
	o.recordAs(base, metric, took.Seconds())
}

// recordOwn records syncs that the lab's own proxier told of.
func (o *outsideSyncs) recordOwn(syncs []proxier.Sync) {
	for _, s := range syncs {
		if !slices.Contains(o.families, s.Family) {
			o.takeCalls(func(c shim.Call) bool { return string(c.Family()) == string(s.Family) })
			continue
		}
		base := Record{
			At: s.Finished.Sub(o.started).Seconds(), Sync: o.repetition.syncs.number(s.Family), Kind: string(s.Kind), Family: string(s.Family),
		}
		seconds := base
		seconds.Unit = "s"
		switch {
		case s.Err == nil && len(s.Runs) > 0 && o.about.hasTools():
			calls := o.ofFamily(base.Family, s.Finished)
			_, last := o.writes(calls)
			o.recordTook(base, s.Duration())
			o.recordCalls(base, during(calls, last, s.Duration()))
		case s.Err == nil && len(s.Runs) > 0:
			o.recordDuration(seconds, s)
		case s.Err != nil:
			o.recordCalls(base, o.ofFamily(base.Family, s.Finished))
		}
		o.recordPhases(seconds, s)
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
	if o.unread() {
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
