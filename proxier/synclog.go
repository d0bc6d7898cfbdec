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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/proxier/tracker"
)

// syncFields are the fields of a Sync without its methods.
type syncFields Sync

// syncLine is one line of a sync log: a Sync in a form that another process can read. Times are wall-clock times.
type syncLine struct {
	syncFields
	// Error is why the sync failed; empty when it did not.
	Error string `json:"error,omitempty"`
	// Stopped: the sync failed because the proxier was stopped.
	Stopped bool `json:"stopped,omitempty"`
}

// MarshalJSON writes the line of a sync.
func (s Sync) MarshalJSON() ([]byte, error) {
	line := syncLine{syncFields: syncFields(s)}
	if s.Err != nil {
		line.Error, line.Stopped = s.Err.Error(), errors.Is(s.Err, context.Canceled)
	}
	return json.Marshal(line)
}

// UnmarshalJSON reads a line. Errors keep only their text, and the error of a stopped sync is context.Canceled.
func (s *Sync) UnmarshalJSON(text []byte) error {
	var line syncLine
	if err := json.Unmarshal(text, &line); err != nil {
		return err
	}
	*s = Sync(line.syncFields)
	if line.Error != "" {
		s.Err = &recordedError{text: line.Error, stopped: line.Stopped}
	}
	return nil
}

// refusalLine is a Refusal in a sync log.
type refusalLine struct {
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Port      string          `json:"port,omitempty"`
	Protocol  corev1.Protocol `json:"protocol"`
	Error     string          `json:"error"`
}

// MarshalJSON writes the names of the Service port and the text of the error.
func (r Refusal) MarshalJSON() ([]byte, error) {
	return json.Marshal(refusalLine{r.Port.Namespace, r.Port.NamespacedName.Name, r.Port.Port(), r.Port.Protocol, r.Err.Error()})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (r *Refusal) UnmarshalJSON(text []byte) error {
	var line refusalLine
	if err := json.Unmarshal(text, &line); err != nil {
		return err
	}
	r.Port = tracker.ServicePortName{
		NamespacedName: types.NamespacedName{Namespace: line.Namespace, Name: line.Name},
		PortKey:        tracker.PortKey{Name: line.Port, Protocol: line.Protocol},
	}
	r.Err = errors.New(line.Error)
	return nil
}

// recordedError is an error of another process: its text, and whether that process was stopped.
type recordedError struct {
	text    string
	stopped bool
}

func (e *recordedError) Error() string        { return e.text }
func (e *recordedError) Is(target error) bool { return e.stopped && target == context.Canceled }

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
	line, err := json.Marshal(s)
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

// ReadSyncLog yields the syncs of a log in order, as they arrive. An error ends the sequence. A last line without a
// newline, left by a killed writer, yields io.ErrUnexpectedEOF.
func ReadSyncLog(r io.Reader) iter.Seq2[Sync, error] {
	return func(yield func(Sync, error) bool) {
		lines := bufio.NewReaderSize(r, 1<<16)
		for number := 1; ; number++ {
			line, err := lines.ReadBytes('\n')
			if err == io.EOF && len(line) == 0 {
				return
			}
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			var s Sync
			if err == nil {
				err = json.Unmarshal(line, &s)
			}
			if err != nil {
				yield(Sync{}, fmt.Errorf("sync log: line %d: %w", number, err))
				return
			}
			if !yield(s, nil) {
				return
			}
		}
	}
}
