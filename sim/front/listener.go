package front

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// Listener is a TCP listener that can be down for a while: it then refuses connections, and resets open ones. Its
// server, for example Front.Serve, does not notice.
type Listener struct {
	address netip.AddrPort

	mu    sync.Mutex
	inner net.Listener // nil while it is down
	// reserved is a socket that is bound to the address and does not listen, while the listener is down. It keeps
	// other processes from the port, above all a connection to it, which would end up connected to itself.
	reserved int
	open     map[*connection]struct{}
	closed   bool
	up       chan struct{} // closed when the listener is up again, or closed for good
}

// Listen makes a listener on an address such as 127.0.0.1:0.
func Listen(address string) (*Listener, error) {
	inner, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return &Listener{
		address: inner.Addr().(*net.TCPAddr).AddrPort(), inner: inner, open: map[*connection]struct{}{}, up: make(chan struct{}),
	}, nil
}

// Addr returns the same address all the time.
func (l *Listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.address) }

// Accept waits for a connection, also while the listener is down.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		l.mu.Lock()
		inner, up, closed := l.inner, l.up, l.closed
		l.mu.Unlock()
		if closed {
			return nil, net.ErrClosed
		}
		if inner == nil {
			<-up
			continue
		}
		c, err := inner.Accept()
		if errors.Is(err, net.ErrClosed) {
			continue // down, or closed for good
		}
		if err != nil {
			return nil, err
		}
		if c := l.admit(inner, c.(*net.TCPConn)); c != nil {
			return c, nil
		}
	}
}

// admit records a connection as open. It resets one that was accepted right before the listener went down.
func (l *Listener) admit(inner net.Listener, c *net.TCPConn) net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	open := &connection{c, l}
	if l.inner != inner {
		open.reset()
		return nil
	}
	l.open[open] = struct{}{}
	return open
}

// Down refuses connections until Up, and resets those that are open.
func (l *Listener) Down() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.inner == nil {
		return nil
	}
	err := l.inner.Close()
	l.inner = nil
	for c := range l.open {
		c.reset()
	}
	clear(l.open)
	if err != nil {
		return fmt.Errorf("listener %s: %w", l.address, err)
	}
	if l.reserved, err = reserve(l.address); err != nil {
		return fmt.Errorf("listener %s: keep the port: %w", l.address, err)
	}
	return nil
}

// Up listens again on the same address, if the listener is down.
func (l *Listener) Up() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.inner != nil {
		return nil
	}
	inner, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", l.address.String())
	if err != nil {
		return fmt.Errorf("listener %s: %w", l.address, err)
	}
	l.release()
	l.inner = inner
	close(l.up)
	l.up = make(chan struct{})
	return nil
}

func (l *Listener) release() {
	if l.reserved > 0 {
		_ = syscall.Close(l.reserved)
		l.reserved = 0
	}
}

// Close closes the listener for good. Open connections stay open.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	close(l.up)
	l.release()
	if l.inner == nil {
		return nil
	}
	return l.inner.Close()
}

// reserve binds a socket to an address. It and the listener's socket have SO_REUSEADDR, with which Linux lets both be
// bound as long as at most one listens.
func reserve(address netip.AddrPort) (int, error) {
	family := syscall.AF_INET
	var to syscall.Sockaddr
	if ip := address.Addr().Unmap(); ip.Is4() {
		to = &syscall.SockaddrInet4{Port: int(address.Port()), Addr: ip.As4()}
	} else {
		family, to = syscall.AF_INET6, &syscall.SockaddrInet6{Port: int(address.Port()), Addr: ip.As16()}
	}
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err == nil {
		err = syscall.Bind(fd, to)
	}
	if err != nil {
		_ = syscall.Close(fd)
		return 0, err
	}
	return fd, nil
}

// connection is one that its listener tracks while it is open.
type connection struct {
	*net.TCPConn
	listener *Listener
}

// Close removes the connection from its listener and closes it.
func (c *connection) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.open, c)
	c.listener.mu.Unlock()
	return c.TCPConn.Close()
}

// reset ends a connection with RST, whatever is still to be sent, as if its host were gone.
func (c *connection) reset() {
	_ = c.SetLinger(0)
	_ = c.TCPConn.Close()
}
