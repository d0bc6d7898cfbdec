package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/proxier"
	"synclab/proxier/backend"
	"synclab/proxier/iptables"
)

// recordsOf returns the records of syncs.
func recordsOf(t *testing.T, syncs ...proxier.Sync) []raw.Record {
	t.Helper()
	var out bytes.Buffer
	r := &Host{Env: &pass.Env{Messages: pass.NewMessageWriter(&out), Clock: clock.RealClock{}}}
	for _, s := range syncs {
		r.onSync(s)
	}
	var records []raw.Record
	for decoder := json.NewDecoder(&out); decoder.More(); {
		var m pass.Message
		if err := decoder.Decode(&m); err != nil {
			t.Fatal(err)
		}
		if m.Record != nil {
			records = append(records, *m.Record)
		}
	}
	return records
}

// sequence returns the sync numbers of a metric's records.
func sequence(records []raw.Record, metric raw.Metric) []int {
	var found []int
	for _, r := range records {
		if r.Metric == metric {
			found = append(found, r.Sync)
		}
	}
	return found
}

// A restarted proxier counts from 1, but the records of its syncs must not mix with earlier ones.
func TestSyncsAreNumberedWithinTheRepetition(t *testing.T) {
	first := proxier.Sync{Family: corev1.IPv4Protocol, Seq: 1, Kind: proxier.Full, Work: backend.Work{Runs: make([]iptables.Run, 1)}}
	other := first
	other.Family = corev1.IPv6Protocol
	got := sequence(recordsOf(t, first, other, first), raw.FullSync)
	if want := []int{1, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("full syncs have the numbers %v, want %v", got, want)
	}
}

// A sync that wrote its rules and failed afterwards is repeated without a difference. Then its changes count as visible.
func TestLatencyOfASyncThatFailedAfterItWrote(t *testing.T) {
	now := time.Unix(1000, 0)
	changes := proxier.Sync{Kind: proxier.Partial, Written: now, TriggerTimes: []time.Time{now.Add(-time.Second)}}
	failed := changes
	failed.Runs, failed.Err = make([]iptables.Run, 1), errors.New("iptables-restore: killed")
	repeated := changes
	repeated.Written = now.Add(time.Second)
	records := recordsOf(t, failed, repeated)
	if got := sequence(records, raw.ChangeSynced); len(got) != 1 || got[0] != 2 {
		t.Errorf("latencies in syncs %v, want one, in sync 2", got)
	}
	for _, r := range records {
		if r.Metric == raw.ChangeSynced && r.Value != 2 {
			t.Errorf("latency %v s, want 2", r.Value)
		}
	}
}

// A sync lasts until its post-sync work is done. Its changes are visible earlier, when the kernel has all rules.
func TestWrittenIsNotTheEndOfASync(t *testing.T) {
	now := time.Unix(1000, 0)
	records := recordsOf(t, proxier.Sync{
		Kind: proxier.Partial, Started: now, Written: now.Add(3 * time.Second), Finished: now.Add(5 * time.Second),
		Work: backend.Work{Runs: make([]iptables.Run, 1)}, TriggerTimes: []time.Time{now.Add(-time.Second)},
	})
	for metric, want := range map[raw.Metric]float64{raw.PartialSync: 5, raw.Written: 3, raw.ChangeSynced: 4} {
		i := slices.IndexFunc(records, func(r raw.Record) bool { return r.Metric == metric })
		if i < 0 || records[i].Value != want {
			t.Errorf("%s is not %v s: %+v", metric, want, records)
		}
	}
}

// A refused restore within a sync that succeeded without it is recorded separately.
func TestRefusedRestore(t *testing.T) {
	records := recordsOf(t, proxier.Sync{Kind: proxier.Full, Work: backend.Work{Runs: []iptables.Run{
		{ExitCode: 2, Wall: time.Second}, {Wall: 3 * time.Second},
	}}})
	got := map[raw.Metric][]float64{}
	for _, r := range records {
		got[r.Metric] = append(got[r.Metric], r.Value)
	}
	if len(got[raw.Restore]) != 1 || got[raw.Restore][0] != 3 || len(got[raw.RestoreRefused]) != 1 || got[raw.RestoreRefused][0] != 1 {
		t.Errorf("restores %v, refused %v; want 3 and 1", got[raw.Restore], got[raw.RestoreRefused])
	}
}

// Several restores may write the rules of a sync: their times are summed and their number is recorded.
func TestSyncOfSeveralRestores(t *testing.T) {
	run := iptables.Run{Wall: time.Second, User: 2 * time.Millisecond, System: 3 * time.Millisecond, Bytes: 10, PeakRSS: 100}
	larger := run
	larger.PeakRSS = 300
	records := recordsOf(t, proxier.Sync{Kind: proxier.Full, Work: backend.Work{Runs: []iptables.Run{run, larger, run}}})
	for metric, want := range map[raw.Metric]float64{
		raw.Restore: 3, raw.Restores: 3, raw.ToolUser: 0.006, raw.ToolSys: 0.009, raw.RestoreBytes: 30, raw.ChildPeakRSS: 300,
	} {
		var got []float64
		for _, r := range records {
			if r.Metric == metric {
				got = append(got, r.Value)
			}
		}
		if len(got) != 1 || math.Abs(got[0]-want) > 1e-9 {
			t.Errorf("%s %v, want %v", metric, got, want)
		}
	}
	netlink := run
	netlink.PeakRSS = 0
	for _, r := range recordsOf(t, proxier.Sync{Kind: proxier.Partial, Work: backend.Work{Runs: []iptables.Run{netlink}}}) {
		if r.Metric == raw.ChildPeakRSS {
			t.Errorf("a child of %v bytes where there was none", r.Value)
		}
	}
}

// An incomplete line of a killed process is skipped, whatever follows. Any other invalid line is an error.
func TestTornSyncLog(t *testing.T) {
	line := `{"family":"IPv4","seq":1}` + "\n"
	for log, want := range map[string]int{
		line + line[:9] + endOfWriter + line: 2,
		line + endOfWriter + line:            2,
		line + line[:9]:                      1,
		line + "nonsense\n" + line:           -1,
		line + `{"family":"` + strings.Repeat("x", 2<<20) + `"}` + "\n" + line: -1, // longer than a line may be
	} {
		n := 0
		err := readSyncLog(strings.NewReader(log), func(proxier.Sync) { n++ })
		if err != nil {
			n = -1
		}
		if n != want {
			t.Errorf("%q: %d syncs, %v; want %d", log, n, err, want)
		}
	}
}
