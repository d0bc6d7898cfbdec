package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"synclab/bench/cgroup"
	"synclab/bench/netns"
	"synclab/bench/socketlb"
)

// sockets are Cilium's programs for the sockets of this process, and of the pods' process that it starts later.
type sockets struct {
	*socketlb.Balancer
	leave func() error
}

// openSockets prepares what Cilium's control plane and programs need: a BPF file system, without which the former does
// not start, and a cgroup.
func (r *Host) openSockets() error {
	if err := netns.MountBPF(); err != nil {
		return err
	}
	group, leave, err := cgroup.Join()
	if err != nil {
		return fmt.Errorf("a cgroup for Cilium's programs: %w", err)
	}
	balancer, err := socketlb.New(r.Tools.Sockets, group)
	if err != nil {
		return errors.Join(err, leave())
	}
	r.sockets = &sockets{balancer, leave}
	return nil
}

// attachSockets attaches the programs as soon as the process has its maps.
func (s *processSubject) attachSockets(ctx context.Context) {
	const often = 10 * time.Millisecond
	ticker := s.Clock.NewTicker(often)
	defer ticker.Stop()
	for {
		err := s.sockets.Attach(fmt.Sprintf("/proc/%d", s.process.PID()))
		if err == nil {
			close(s.attached)
			return
		}
		if !errors.Is(err, socketlb.ErrNoMaps) {
			s.Fail(err)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// Close ends what outlives a subject. Its process and the pods' must have ended.
func (r *Host) Close() error {
	if r.Harness != nil {
		r.Harness.Visible.Close()
	}
	if r.sockets == nil {
		return nil
	}
	return errors.Join(r.sockets.Close(), r.sockets.leave())
}
