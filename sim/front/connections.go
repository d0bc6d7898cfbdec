package front

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// Limits bound what clients cost a server. Any user of the machine may be one.
type Limits struct {
	// Connections at a time. One more ends the oldest: a client that opens many cannot keep others out, nor use up the
	// process's descriptors.
	Connections int
	// Headers is the time for a request's headers; Idle that between two requests.
	Headers, Idle time.Duration
}

// DefaultLimits are those of the fake API server, whose clients keep their connections.
var DefaultLimits = Limits{Connections: 512, Headers: 10 * time.Second, Idle: 3 * time.Minute}

// connections are the open connections of a server, the oldest first.
type connections struct {
	most int
	mu   sync.Mutex
	open []net.Conn
}

// changed is the server's ConnState.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		if len(c.open) >= c.most {
			_ = c.open[0].Close() // its own goroutine reports that it is closed
			c.open = slices.Delete(c.open, 0, 1)
		}
		c.open = append(c.open, conn)
	case http.StateClosed, http.StateHijacked:
		if i := slices.Index(c.open, conn); i >= 0 {
			c.open = slices.Delete(c.open, i, i+1)
		}
	}
}

// klogged writes what net/http says of its clients to the log, where -v=2 shows it. A terminal shows a run.
type klogged struct{}

// Write implements io.Writer.
func (klogged) Write(text []byte) (int, error) {
	klog.V(2).Info(strings.TrimSpace(string(text)))
	return len(text), nil
}
