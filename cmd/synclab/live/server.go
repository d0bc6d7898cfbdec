package live

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"synclab/sim/front"
)

const (
	eventsPath  = "/events"
	metricsPath = "/metrics"

	// pushEvery is the least time between two events of a stream. idleEvery is the longest: times go on without changes.
	pushEvery = 500 * time.Millisecond
	idleEvery = 5 * time.Second
	// mostStreams bounds what open pages cost. One more ends the oldest.
	mostStreams = 8
	// writeTimeout is how long a client may take to read an answer or an event.
	writeTimeout = 10 * time.Second
)

// limits are for pages and scrapes of a few people. A client that opens more connections ends older ones.
var limits = front.Limits{Connections: 64, Headers: 5 * time.Second, Idle: 10 * time.Second}

// Server serves a run.
type Server struct {
	*state
	title   string
	address net.Addr
	handler http.Handler
	streams streams
	end     context.CancelFunc
	served  chan error
}

// Start serves a run on a listener until Close.
func Start(l net.Listener, title string) *Server {
	s := newServer(title)
	s.address = l.Addr()
	ctx, end := context.WithCancel(context.Background())
	s.end = end
	go func() { s.served <- front.Serve(ctx, l, s.handler, limits) }()
	return s
}

func newServer(title string) *Server {
	s := &Server{state: newState(), title: title, served: make(chan error, 1)}
	registry := prometheus.NewRegistry()
	registry.MustRegister(s, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.servePage)
	mux.HandleFunc("GET "+eventsPath, s.serveEvents)
	mux.Handle("GET "+metricsPath, promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: mostStreams}))
	s.handler = guard(mux)
	return s
}

// URL is the address of the page.
func (s *Server) URL() string { return fmt.Sprintf("http://%s/", s.address) }

// Close sends the last state to open pages and stops serving.
func (s *Server) Close() error {
	s.end()
	return <-s.served
}

// guard refuses host names, as the fake API server does, and lets browsers show the page only for itself.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := front.CheckHost(r.Host); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		for name, value := range map[string]string{
			"Content-Security-Policy":      "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
			"Cross-Origin-Resource-Policy": "same-origin", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
		} {
			w.Header().Set(name, value)
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
		next.ServeHTTP(w, r)
	})
}

func (s *Server) servePage(w http.ResponseWriter, _ *http.Request) {
	page, err := s.page()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(page) // the client may have disconnected
}

// serveEvents sends the sections until the client disconnects or the run ends.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	crowded, leave := s.streams.join()
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	for ctx := r.Context(); ; {
		began := time.Now()
		data, changed, err := s.sections()
		if err != nil {
			return // the page itself reports it
		}
		pause := max(pushEvery, 100*time.Since(began)) // a page takes at most 1 % of a CPU
		name := "message"
		if ctx.Err() != nil {
			name = "end"
		}
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, data); err != nil || control.Flush() != nil || name == "end" {
			return
		}
		wait(ctx, pause, nil)
		select {
		case <-crowded:
			return // a page that is still open connects again
		default:
		}
		wait(ctx, idleEvery, changed)
	}
}

// streams are the open streams of events, the oldest first.
type streams struct {
	mu   sync.Mutex
	open []chan struct{} // closed if there are too many
}

// join adds a stream. It ends when crowded is closed; leave says that it has ended.
func (s *streams) join() (crowded <-chan struct{}, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := make(chan struct{})
	if s.open = append(s.open, own); len(s.open) > mostStreams {
		close(s.open[0])
		s.open = s.open[1:]
	}
	return own, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if i := slices.Index(s.open, own); i >= 0 {
			s.open = slices.Delete(s.open, i, i+1)
		}
	}
}

// wait returns after a time, or earlier when ctx or done ends.
func wait(ctx context.Context, most time.Duration, done <-chan struct{}) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-done:
	case <-timer.C:
	}
}
