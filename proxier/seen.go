package proxier

import (
	"context"
	"strconv"
	"sync"
)

// seen records how far the handlers are in one kind's stream of changes, by resourceVersion.
type seen struct {
	mu      sync.Mutex
	version int64
	changed chan struct{} // closed and replaced whenever version grows
}

func newSeen() *seen { return &seen{changed: make(chan struct{})} }

// object notes an object that a handler received. It ignores versions that are not numbers.
func (s *seen) object(obj any) {
	if versioned, ok := obj.(interface{ GetResourceVersion() string }); ok {
		s.reached(versioned.GetResourceVersion())
	}
}

// reached notes that the handlers have seen everything up to a resourceVersion.
func (s *seen) reached(resourceVersion string) {
	version, err := strconv.ParseInt(resourceVersion, 10, 64)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if version > s.version {
		s.version = version
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

func (s *seen) wait(ctx context.Context, version int64) error {
	for {
		s.mu.Lock()
		have, changed := s.version, s.changed
		s.mu.Unlock()
		if have >= version {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// WaitSeen returns when the handlers have seen the given resourceVersions of Services and EndpointSlices. Earlier
// changes are then in the tracker, and WaitIdle waits for them too.
func (p *Proxier) WaitSeen(ctx context.Context, services, slices int64) error {
	if err := p.services.wait(ctx, services); err != nil {
		return err
	}
	return p.slices.wait(ctx, slices)
}
