package proxier

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/proxier/backend"
	"synclab/proxier/iptables"
	"synclab/proxier/tracker"
)

func sampleSync() Sync {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC)
	return Sync{
		Family: corev1.IPv6Protocol, Seq: 7, Kind: Full, Reason: "drift",
		Queued: at, Started: at.Add(time.Second), Written: at.Add(2 * time.Second), Finished: at.Add(3 * time.Second),
		Plan: 1,
		Work: backend.Work{
			Encode: 2, Jumps: 3,
			Runs: []iptables.Run{{
				Tool: "ip6tables-legacy-restore", Wall: 4, User: 5, System: 6, Bytes: 7, PeakRSS: 8, ExitCode: -1,
			}},
			Installed: map[iptables.Table]iptables.Count{iptables.NAT: {Chains: 1, Rules: 2}, iptables.Filter: {Chains: 3, Rules: 4}},
			Sent:      map[iptables.Table]iptables.Count{iptables.NAT: {Chains: 5, Rules: 6}},
		},
		Services: 9, Endpoints: 10, Changes: 11, Events: 12, Pending: 13,
		TriggerTimes: []time.Time{at.Add(-time.Second), at},
		Refused: []Refusal{{
			Port: tracker.ServicePortName{
				NamespacedName: types.NamespacedName{Namespace: "ns", Name: "svc"},
				PortKey:        tracker.PortKey{Name: "http", Protocol: corev1.ProtocolUDP},
			},
			Err: errors.New("line 12 failed"),
		}},
		Err: errors.New("iptables-restore: exit status 4"),
	}
}

// A sync read back from the log equals the one written; errors are compared by text. Every field of the sample is set,
// so that the test finds a field that the log or the sample omits.
func TestSyncLogRoundTrip(t *testing.T) {
	full := sampleSync()
	for _, field := range reflect.VisibleFields(reflect.TypeOf(full)) { // those of the embedded Work, too
		if reflect.ValueOf(full).FieldByIndex(field.Index).IsZero() {
			t.Errorf("the sample leaves %s at zero", field.Name)
		}
	}
	syncs := []Sync{full, {Family: corev1.IPv4Protocol, Seq: 1, Kind: Partial, Reason: "changes"}}
	var log bytes.Buffer
	writer := NewSyncLog(&log)
	for _, s := range syncs {
		if err := writer.Append(s); err != nil {
			t.Fatal(err)
		}
	}
	var got []Sync
	for s, err := range ReadSyncLog(&log) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, s)
	}
	sameText := cmp.Comparer(func(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) })
	if diff := cmp.Diff(syncs, got, sameText); diff != "" {
		t.Errorf("syncs read back differ (-written +read):\n%s", diff)
	}
}

// A reader of the log must be able to distinguish a failure from the end of the proxier.
func TestSyncLogStopped(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{fmt.Errorf("iptables-restore: %w", context.Canceled), true},
		{errors.New("iptables-restore: exit status 2"), false},
	} {
		line, err := json.Marshal(Sync{Err: c.err})
		if err != nil {
			t.Fatal(err)
		}
		var read Sync
		if err := json.Unmarshal(line, &read); err != nil {
			t.Fatal(err)
		}
		if got := read.Err; errors.Is(got, context.Canceled) != c.want || got.Error() != c.err.Error() {
			t.Errorf("%v comes back as %v; canceled: want %v", c.err, got, c.want)
		}
	}
}

// A killed proxier leaves half a line. All lines before it are read.
func TestSyncLogTorn(t *testing.T) {
	var log bytes.Buffer
	writer := NewSyncLog(&log)
	for range 2 {
		if err := writer.Append(sampleSync()); err != nil {
			t.Fatal(err)
		}
	}
	log.Truncate(log.Len() - 10)
	var records int
	var last error
	for _, err := range ReadSyncLog(&log) {
		if last = err; err == nil {
			records++
		}
	}
	if records != 1 || !errors.Is(last, io.ErrUnexpectedEOF) {
		t.Errorf("%d records, then %v; want 1, then %v", records, last, io.ErrUnexpectedEOF)
	}
}
