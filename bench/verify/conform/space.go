package conform

import (
	"fmt"
	"net/netip"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"synclab/bench/lab/netns"
)

// space is a separate network namespace with a locked thread in it. Processes that the thread starts are in it too.
type space struct {
	calls chan func()
	ended chan struct{}
}

// newSpace makes a namespace with lo and the node's addresses.
func newSpace(node []netip.Addr) (*space, error) {
	s := &space{calls: make(chan func()), ended: make(chan struct{})}
	ready := make(chan error)
	go func() {
		defer close(s.ended)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and the namespace with the thread
		err := enterNew(node)
		ready <- err
		if err != nil {
			return
		}
		for call := range s.calls {
			call()
		}
	}()
	if err := <-ready; err != nil {
		return nil, fmt.Errorf("namespace: %w", err)
	}
	return s, nil
}

func enterNew(node []netip.Addr) error {
	if err := netns.Guard(); err != nil { // refuses to run inside one of the machine's own namespaces
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("lo up: %w", err)
	}
	return (&netns.Lab{}).Connect(netns.Topology{Node: node})
}

// do runs f on the namespace's thread.
func (s *space) do(f func() error) error {
	result := make(chan error)
	s.calls <- func() { result <- f() }
	return <-result
}

// close ends the thread. The kernel then kills the processes that it started (see syscall.SysProcAttr.Pdeathsig).
func (s *space) close() {
	close(s.calls)
	<-s.ended
}
