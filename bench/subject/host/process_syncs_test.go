package host

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"synclab/bench/lab/process"
	"synclab/bench/lab/shim"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/subject"
)

// readSyncs returns the records of syncs, reading by reading of the metrics, each with the calls that ended before it.
func readSyncs(t *testing.T, name string, readings ...syncReading) []string {
	t.Helper()
	var out bytes.Buffer
	about, err := subject.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	r := &Host{Env: &pass.Env{Messages: pass.NewMessageWriter(&out), Clock: clock.RealClock{}, About: about, Families: []corev1.IPFamily{corev1.IPv4Protocol}}}
	r.Started = r.Clock.Now().Add(-time.Minute)
	o := newProcessSyncs(&processSubject{Host: r})
	for _, reading := range readings {
		for _, c := range reading.calls {
			o.calls, o.wrote = append(o.calls, c), o.wrote || about.Writes(c)
		}
		for _, sync := range reading.syncs {
			o.synced[sync.Family] += sync.Count
		}
		o.recordRead(reading.syncs)
	}
	var lines []string
	for decoder := json.NewDecoder(&out); decoder.More(); {
		var m pass.Message
		if err := decoder.Decode(&m); err != nil {
			t.Fatal(err)
		}
		switch r := m.Record; r.Metric {
		case raw.FullSync, raw.PartialSync, raw.SyncFailed, raw.SyncsNotSeparable, raw.Restore:
			lines = append(lines, fmt.Sprintf("%s %s %v #%d", r.Metric, r.Kind, r.Value, r.Sync))
		}
	}
	return lines
}

type syncReading struct {
	calls []shim.Call
	syncs []process.Sync
}

// No duration is a mean of several syncs. Failed syncs have none, nor have syncs that wrote nothing.
func TestSyncsFromMetrics(t *testing.T) {
	began := time.Now().Add(-30 * time.Second)
	call := func(at, took int, exit int) shim.Call { // ms
		start := began.Add(time.Duration(at) * time.Millisecond)
		return shim.Call{Tool: "nft", Args: []string{"-f", "-"}, Head: "add table ip kube-proxy", ExitCode: exit,
			Start: start, End: start.Add(time.Duration(took) * time.Millisecond)}
	}
	list := func(at int) shim.Call {
		c := call(at, 1, 0)
		c.Args = []string{"--json", "list", "chains", "ip"}
		return c
	}
	one := func(kind string, n, total, failed int) process.Sync {
		return process.Sync{Kind: kind, Family: "IPv4", Count: n, Total: time.Duration(total) * time.Millisecond, Failed: failed}
	}
	calls := func(c ...shim.Call) []shim.Call { return c }
	for _, c := range []struct {
		name     string
		subject  string
		readings []syncReading
		want     []string
	}{
		{"single ones", "kube-proxy/nftables", []syncReading{
			{calls(call(0, 100, 0)), []process.Sync{one("full", 1, 120, 0)}},
			{calls(call(1000, 10, 0)), []process.Sync{one("partial", 1, 15, 0)}},
		}, []string{"full_sync full 0.12 #1", "restore full 0.1 #1", "partial_sync partial 0.015 #2", "restore partial 0.01 #2"}},
		{"several of a kind", "kube-proxy/nftables", []syncReading{
			{calls(call(0, 10, 0), call(50, 30, 0), call(100, 20, 0)), []process.Sync{one("partial", 3, 80, 0)}},
		}, []string{"syncs_not_separable partial 3 #3"}},
		{"several kinds", "kube-proxy/nftables", []syncReading{
			{calls(call(0, 10, 0), call(50, 30, 0)), []process.Sync{one("full", 1, 12, 0), one("partial", 1, 40, 0)}},
		}, []string{"syncs_not_separable  2 #2"}},
		{"several, some of which failed", "kube-proxy/nftables", []syncReading{
			{calls(call(0, 10, 1), call(50, 30, 0), call(100, 20, 0)), []process.Sync{one("full", 3, 80, 1)}},
		}, []string{"sync_failed full 1 #3", "syncs_not_separable full 2 #3"}},
		{"after several, whose calls its own may have been among", "kube-proxy/nftables", []syncReading{
			{calls(call(0, 10, 0), call(50, 30, 0), call(100, 20, 0)), []process.Sync{one("partial", 2, 80, 0)}},
			{nil, []process.Sync{one("partial", 1, 30, 0)}},
			{nil, []process.Sync{one("partial", 1, 30, 0)}},
		}, []string{"syncs_not_separable partial 2 #2", "partial_sync partial 0.03 #3"}},
		{"failed, as counters and tool say", "kube-proxy/nftables", []syncReading{
			{calls(call(0, 10, 1)), []process.Sync{one("full", 1, 12, 1)}},
		}, []string{"sync_failed full 1 #1"}},
		{"failed before any tool ran", "kube-proxy/iptables-legacy", []syncReading{
			{nil, []process.Sync{one("partial", 1, 12, 1)}},
		}, []string{"sync_failed partial 1 #1"}},
		{"a failure of the sync that follows", "kube-proxy/nftables", []syncReading{
			{calls(call(0, 10, 0)), []process.Sync{one("full", 1, 12, 1)}},
			{calls(call(100, 10, 1)), []process.Sync{one("partial", 1, 12, 0)}},
		}, []string{"syncs_not_separable full 1 #1", "syncs_not_separable partial 1 #2"}},
		{"a tool of the sync that follows", "kube-proxy/nftables", []syncReading{
			{calls(call(0, 10, 0)), []process.Sync{one("full", 1, 12, 0)}},
			{calls(call(100, 10, 0), call(120, 10, 0)), []process.Sync{one("partial", 1, 12, 0)}},
			{nil, []process.Sync{one("partial", 1, 12, 0)}},
		}, []string{"full_sync full 0.012 #1", "restore full 0.01 #1", "partial_sync partial 0.012 #2", "partial_sync partial 0.012 #3"}},
		{"a tool that ran before the first sync", "kube-proxy/nftables", []syncReading{
			{calls(call(0, 10, 0), call(500, 10, 0)), []process.Sync{one("full", 1, 12, 0)}},
		}, []string{"full_sync full 0.012 #1", "restore full 0.01 #1"}},
		{"nothing written", "kube-proxy/nftables", []syncReading{
			{calls(call(0, 10, 0)), []process.Sync{one("full", 1, 12, 0)}},
			{calls(list(100)), []process.Sync{one("partial", 1, 12, 0)}},
		}, []string{"full_sync full 0.012 #1", "restore full 0.01 #1"}},
		{"of a subject without tools", "exec:mine=proxier", []syncReading{
			{nil, []process.Sync{one("", 1, 12, 0)}},
			{nil, []process.Sync{one("", 2, 30, 0)}},
		}, []string{"partial_sync  0.012 #1", "syncs_not_separable  2 #3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := readSyncs(t, c.subject, c.readings...); !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}
