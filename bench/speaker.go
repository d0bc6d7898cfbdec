package bench

import (
	"encoding/json"
	"io"
	"maps"
	"slices"
	"sync"
	"time"
)

// progressEvery bounds how often a worker tells how far a stage is.
const progressEvery = 100 * time.Millisecond

// speaker writes a worker's messages. It is safe for concurrent use.
type speaker struct {
	mu      sync.Mutex
	encoder *json.Encoder
	failed  error
	told    time.Time
}

func newSpeaker(w io.Writer) *speaker { return &speaker{encoder: json.NewEncoder(w)} }

func (s *speaker) message(m message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(m)
}

func (s *speaker) write(m message) {
	if err := s.encoder.Encode(m); err != nil && s.failed == nil {
		s.failed = err
	}
}

// stage tells how far a stage is; the first and the last step always, others now and then.
func (s *speaker) stage(name string, done, total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); done == 0 || done == total || now.Sub(s.told) >= progressEvery {
		s.told = now
		s.write(message{Stage: name, Done: done, Total: total})
	}
}

func (s *speaker) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
