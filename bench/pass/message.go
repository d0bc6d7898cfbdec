package pass

import (
	"encoding/json"
	"io"
	"sync"
	"time"

	"synclab/bench/raw"
)

// Message is one message of a worker, as a JSON line.
type Message struct {
	Record      *raw.Record `json:",omitempty"`
	Stage       string      `json:",omitempty"`
	Done, Total int         `json:",omitempty"`
	Note        string      `json:",omitempty"`
	Rules       string      `json:",omitempty"`
	Failure     string      `json:",omitempty"`
	// File of the run's folder, below raw.ProfilesFolder, and its content.
	File    string `json:",omitempty"`
	Content []byte `json:",omitempty"`
	// UserNamespace: the worker is root in its user namespace only.
	UserNamespace bool `json:",omitempty"`
}

// progressEvery is the shortest time between two progress messages of a stage.
const progressEvery = 100 * time.Millisecond

// MessageWriter writes a worker's messages. It is safe for concurrent use.
type MessageWriter struct {
	mu       sync.Mutex
	encoder  *json.Encoder
	failed   error
	reported time.Time
}

func NewMessageWriter(w io.Writer) *MessageWriter { return &MessageWriter{encoder: json.NewEncoder(w)} }

func (s *MessageWriter) Send(m Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(m)
}

func (s *MessageWriter) write(m Message) {
	if err := s.encoder.Encode(m); err != nil && s.failed == nil {
		s.failed = err
	}
}

// Stage reports the progress of a stage: the first and the last step always, others at most once per progressEvery.
func (s *MessageWriter) Stage(name string, done, total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); done == 0 || done == total || now.Sub(s.reported) >= progressEvery {
		s.reported = now
		s.write(Message{Stage: name, Done: done, Total: total})
	}
}

func (s *MessageWriter) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}
