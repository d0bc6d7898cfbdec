package bench

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

	"synclab/proxier"
	"synclab/proxier/iptables"
)

// told are the records that a repetition makes of syncs.
func told(t *testing.T, syncs ...proxier.Sync) []Record {
	t.Helper()
	var out bytes.Buffer
	r := &repetition{say: newSpeaker(&out), clock: clock.RealClock{}}
	for _, s := range syncs {
		r.onSync(s)
	}
	var records []Record
	for decoder := json.NewDecoder(&out); decoder.More(); {
		var m message
		if err := decoder.Decode(&m); err != nil {
			t.Fatal(err)
		}
		if m.Record != nil {
			records = append(records, *m.Record)
		}
	}
	return records
}

// sequence gives the sync numbers of a metric's records.
func sequence(records []Record, metric Metric) []int {
	var found []int
	for _, r := range records {
		if r.Metric == metric {
			found = append(found, r.Sync)
		}
	}
	return found
}

// A proxier that is started again counts from 1; the records of its syncs must not mix with those before.
func TestSyncsAreNumberedWithinTheRepetition(t *testing.T) {
	first := proxier.Sync{Family: corev1.IPv4Protocol, Seq: 1, Kind: proxier.Full, Runs: make([]iptables.Run, 1)}
	other := first
	other.Family = corev1.IPv6Protocol
	got := sequence(told(t, first, other, first), FullSync)
	if want := []int{1, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("full syncs have the numbers %v, want %v", got, want)
	}
}

// A sync that wrote its rules and failed after that is repeated; then nothing differs, and the changes are visible.
func TestLatencyOfASyncThatFailedAfterItWrote(t *testing.T) {
	now := time.Unix(1000, 0)
	changes := proxier.Sync{Kind: proxier.Partial, Written: now, TriggerTimes: []time.Time{now.Add(-time.Second)}}
	failed := changes
	failed.Runs, failed.Err = make([]iptables.Run, 1), errors.New("iptables-restore: killed")
	repeated := changes
	repeated.Written = now.Add(time.Second)
	records := told(t, failed, repeated)
	if got := sequence(records, ChangeSynced); len(got) != 1 || got[0] != 2 {
		t.Errorf("latencies in syncs %v, want one, in sync 2", got)
	}
	for _, r := range records {
		if r.Metric == ChangeSynced && r.Value != 2 {
			t.Errorf("latency %v s, want 2", r.Value)
		}
	}
}

// A sync lasts until its post-sync work is done; its changes are visible before, when the kernel has everything.
func TestWrittenIsNotTheEndOfASync(t *testing.T) {
	now := time.Unix(1000, 0)
	records := told(t, proxier.Sync{
		Kind: proxier.Partial, Started: now, Written: now.Add(3 * time.Second), Finished: now.Add(5 * time.Second),
		Runs: make([]iptables.Run, 1), TriggerTimes: []time.Time{now.Add(-time.Second)},
	})
	for metric, want := range map[Metric]float64{PartialSync: 5, Written: 3, ChangeSynced: 4} {
		i := slices.IndexFunc(records, func(r Record) bool { return r.Metric == metric })
		if i < 0 || records[i].Value != want {
			t.Errorf("%s is not %v s: %+v", metric, want, records)
		}
	}
}

// A restore that was refused within a sync that succeeded without it is not a restore like others.
func TestRefusedRestore(t *testing.T) {
	records := told(t, proxier.Sync{Kind: proxier.Full, Runs: []iptables.Run{
		{ExitCode: 2, Wall: time.Second}, {Wall: 3 * time.Second},
	}})
	got := map[Metric][]float64{}
	for _, r := range records {
		got[r.Metric] = append(got[r.Metric], r.Value)
	}
	if len(got[Restore]) != 1 || got[Restore][0] != 3 || len(got[RestoreRefused]) != 1 || got[RestoreRefused][0] != 1 {
		t.Errorf("restores %v, refused %v; want 3 and 1", got[Restore], got[RestoreRefused])
	}
}

// What writes the rules of a sync may be several restores: their times add up, and their number is told.
func TestSyncOfSeveralRestores(t *testing.T) {
	run := iptables.Run{Wall: time.Second, User: 2 * time.Millisecond, System: 3 * time.Millisecond, Bytes: 10, PeakRSS: 100}
	larger := run
	larger.PeakRSS = 300
	records := told(t, proxier.Sync{Kind: proxier.Full, Runs: []iptables.Run{run, larger, run}})
	for metric, want := range map[Metric]float64{
		Restore: 3, Restores: 3, ToolUser: 0.006, ToolSys: 0.009, RestoreBytes: 30, ChildPeakRSS: 300,
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
	for _, r := range told(t, proxier.Sync{Kind: proxier.Partial, Runs: []iptables.Run{netlink}}) {
		if r.Metric == ChildPeakRSS {
			t.Errorf("a child of %v bytes where there was none", r.Value)
		}
	}
}

// A line that a killed process left torn is left out, whatever comes after it; any other line that is none is an error.
func TestTornSyncLog(t *testing.T) {
	line := `{"family":"IPv4","seq":1}` + "\n"
	for log, want := range map[string]int{
		line + line[:9] + endOfWriter + line: 2,
		line + endOfWriter + line:            2,
		line + line[:9]:                      1,
		line + "nonsense\n" + line:           -1,
	} {
		n := 0
		err := readSyncLog(strings.NewReader(log), func(proxier.SyncRecord) { n++ })
		if err != nil {
			n = -1
		}
		if n != want {
			t.Errorf("%q: %d syncs, %v; want %d", log, n, err, want)
		}
	}
}
