package proxier

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/proxier/backend"
	"synclab/proxier/tracker"
)

// SyncRecord is one line of a sync log: a Sync in a form that another process can read. Errors are text. Times are
// wall-clock times. Durations are in nanoseconds.
type SyncRecord struct {
	Family corev1.IPFamily `json:"family"`
	Seq    int             `json:"seq"` // from 1, within the family and the process
	Kind   Kind            `json:"kind"`
	Reason string          `json:"reason"`
	// Queued is absent when the sync had no changes.
	Queued  time.Time `json:"queued,omitzero"`
	Started time.Time `json:"started"`
	// Written is when the kernel had all rules; absent when the sync failed.
	Written  time.Time     `json:"written,omitzero"`
	Finished time.Time     `json:"finished"`
	Plan     time.Duration `json:"plan_ns"`
	Encode   time.Duration `json:"encode_ns"`
	Jumps    time.Duration `json:"jumps_ns"`
	Runs     []RunRecord   `json:"runs,omitempty"`
	// Installed and Sent are counts by table.
	Installed map[backend.Table]CountRecord `json:"installed,omitempty"`
	Sent      map[backend.Table]CountRecord `json:"sent,omitempty"`
	Services  int                           `json:"services"`
	Endpoints int                           `json:"endpoints"`
	Changes   int                           `json:"changes"`
	Events    int                           `json:"events"`
	Pending   int                           `json:"pending"`
	// TriggerTimes are the trigger times of the changes that became visible with this sync.
	TriggerTimes []time.Time     `json:"triggerTimes,omitempty"`
	Refused      []RefusalRecord `json:"refused,omitempty"`
	// Error is why the sync failed; empty when it did not.
	Error string `json:"error,omitempty"`
	// Stopped: the sync failed because the proxier was stopped.
	Stopped bool `json:"stopped,omitempty"`
}

// RunRecord is one run of a tool, as in backend.Run.
type RunRecord struct {
	Tool     string        `json:"tool"`
	Wall     time.Duration `json:"wall_ns"`
	User     time.Duration `json:"user_ns"`
	System   time.Duration `json:"system_ns"`
	Bytes    int           `json:"bytes"`
	PeakRSS  int64         `json:"peak_rss_bytes"`
	ExitCode int           `json:"exitCode"`
}

// CountRecord is the number of the proxier's chains and rules in a table, or sent to it.
type CountRecord struct {
	Chains int `json:"chains"`
	Rules  int `json:"rules"`
}

// RefusalRecord is a Service port whose rules were refused.
type RefusalRecord struct {
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Port      string          `json:"port,omitempty"`
	Protocol  corev1.Protocol `json:"protocol"`
	Error     string          `json:"error"`
}

// RecordOf converts a sync into a line of the log.
func RecordOf(s Sync) SyncRecord {
	r := SyncRecord{
		Family: s.Family, Seq: s.Seq, Kind: s.Kind, Reason: s.Reason,
		Queued: wallClock(s.Queued), Started: wallClock(s.Started), Written: wallClock(s.Written), Finished: wallClock(s.Finished),
		Plan: s.Plan, Encode: s.Encode, Jumps: s.Jumps, Installed: counts(s.Installed), Sent: counts(s.Sent),
		Services: s.Services, Endpoints: s.Endpoints, Changes: s.Changes, Events: s.Events, Pending: s.Pending,
	}
	for _, run := range s.Runs {
		r.Runs = append(r.Runs, RunRecord(run))
	}
	for _, due := range s.TriggerTimes {
		r.TriggerTimes = append(r.TriggerTimes, wallClock(due))
	}
	for _, refused := range s.Refused {
		r.Refused = append(r.Refused, RefusalRecord{
			Namespace: refused.Port.Namespace, Name: refused.Port.NamespacedName.Name, Port: refused.Port.Port(),
			Protocol: refused.Port.Protocol, Error: refused.Err.Error(),
		})
	}
	if s.Err != nil {
		r.Error, r.Stopped = s.Err.Error(), errors.Is(s.Err, context.Canceled)
	}
	return r
}

// Sync converts the record back. Errors keep only their text, and the error of a stopped sync is context.Canceled.
func (r SyncRecord) Sync() Sync {
	s := Sync{
		Family: r.Family, Seq: r.Seq, Kind: r.Kind, Reason: r.Reason, Queued: r.Queued, Started: r.Started, Written: r.Written, Finished: r.Finished,
		Plan: r.Plan, Encode: r.Encode, Jumps: r.Jumps, TriggerTimes: r.TriggerTimes,
		Services: r.Services, Endpoints: r.Endpoints, Changes: r.Changes, Events: r.Events, Pending: r.Pending,
	}
	s.Installed, s.Sent = tables(r.Installed), tables(r.Sent)
	for _, run := range r.Runs {
		s.Runs = append(s.Runs, backend.Run(run))
	}
	for _, refused := range r.Refused {
		port := tracker.ServicePortName{
			NamespacedName: types.NamespacedName{Namespace: refused.Namespace, Name: refused.Name},
			PortKey:        tracker.PortKey{Name: refused.Port, Protocol: refused.Protocol},
		}
		s.Refused = append(s.Refused, Refusal{Port: port, Err: errors.New(refused.Error)})
	}
	if r.Error != "" {
		s.Err = &recordedError{text: r.Error, stopped: r.Stopped}
	}
	return s
}

// recordedError is an error of another process: its text, and whether that process was stopped.
type recordedError struct {
	text    string
	stopped bool
}

func (e *recordedError) Error() string        { return e.text }
func (e *recordedError) Is(target error) bool { return e.stopped && target == context.Canceled }

// wallClock drops the monotonic reading, which has no meaning in another process.
func wallClock(t time.Time) time.Time { return t.Round(0) }

func counts(in map[backend.Table]backend.Count) map[backend.Table]CountRecord {
	var out map[backend.Table]CountRecord
	for table, count := range in {
		if out == nil {
			out = map[backend.Table]CountRecord{}
		}
		out[table] = CountRecord(count)
	}
	return out
}

func tables(in map[backend.Table]CountRecord) map[backend.Table]backend.Count {
	var out map[backend.Table]backend.Count
	for table, count := range in {
		if out == nil {
			out = map[backend.Table]backend.Count{}
		}
		out[table] = backend.Count(count)
	}
	return out
}

// SyncLog writes one line of JSON per sync, each in a single write. Several processes may append to one file, and the
// reader of a pipe sees whole lines. It is safe for concurrent use.
type SyncLog struct {
	mu sync.Mutex
	w  io.Writer
}

// NewSyncLog returns a log that writes to w. The sync waits for the write: a full pipe without a reader blocks the
// proxier.
func NewSyncLog(w io.Writer) *SyncLog { return &SyncLog{w: w} }

// Append writes one line.
func (l *SyncLog) Append(s Sync) error {
	line, err := json.Marshal(RecordOf(s))
	if err != nil {
		return fmt.Errorf("sync log: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.w.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("sync log: %w", err)
	}
	return nil
}

// ReadSyncLog yields the records of a log in order, as they arrive. An error ends the sequence. A last line without a
// newline, left by a killed writer, yields io.ErrUnexpectedEOF.
func ReadSyncLog(r io.Reader) iter.Seq2[SyncRecord, error] {
	return func(yield func(SyncRecord, error) bool) {
		lines := bufio.NewReaderSize(r, 1<<16)
		for number := 1; ; number++ {
			line, err := lines.ReadBytes('\n')
			if err == io.EOF && len(line) == 0 {
				return
			}
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			var record SyncRecord
			if err == nil {
				err = json.Unmarshal(line, &record)
			}
			if err != nil {
				yield(SyncRecord{}, fmt.Errorf("sync log: line %d: %w", number, err))
				return
			}
			if !yield(record, nil) {
				return
			}
		}
	}
}
