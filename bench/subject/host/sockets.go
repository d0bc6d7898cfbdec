package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"synclab/bench/lab/cgroup"
	"synclab/bench/lab/netns"
	"synclab/bench/subject"
	"synclab/bench/subject/socketlb"
)

// openSockets prepares what Cilium's control plane and programs need: a BPF file system, without which the former does
// not start, and a cgroup. The programs are for the sockets of this process, and of the pods' process that it starts later.
// The run's other subjects get the cgroup too, since its accounting costs something.
func (r *Host) openSockets() error {
	group, leave, err := cgroup.Join()
	if err != nil {
		return fmt.Errorf("a cgroup for Cilium's programs: %w", err)
	}
	r.leaveGroup = leave
	if r.About.Carrier != subject.Sockets {
		return nil
	}
	if err := netns.MountBPF(); err != nil {
		return err
	}
	r.sockets, err = socketlb.New(r.Tools.Sockets, group)
	return err
}

// attachInterval is the interval of checks for the maps of a process that starts.
const attachInterval = 10 * time.Millisecond

// attachSockets attaches the programs as soon as the first process has its maps. After a restart, the maps of the process
// before serve flows until the new ones are complete, since the agent's maps outlive it.
func (s *processSubject) attachSockets(ctx context.Context, first bool) {
	if !first {
		s.Harness.Watcher.Recheck()
		if err := s.Harness.Watcher.Wait(ctx); err != nil {
			return // InSync returns it too
		}
	}
	ticker := s.Clock.NewTicker(attachInterval)
	defer ticker.Stop()
	for {
		err := s.sockets.Attach(s.process.PID())
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
		r.Harness.Watcher.Close()
	}
	var err error
	if r.sockets != nil {
		err = r.sockets.Close()
	}
	if r.leaveGroup != nil {
		err = errors.Join(err, r.leaveGroup())
	}
	return err
}
