package userspace

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// fakeSocket is a UDP socket in memory.
type fakeSocket struct {
	in, out chan packet
	once    sync.Once
	closed  chan struct{}
}

type packet struct {
	text string
	peer netip.AddrPort
}

func newFakeSocket() *fakeSocket {
	return &fakeSocket{in: make(chan packet), out: make(chan packet), closed: make(chan struct{})}
}

func (s *fakeSocket) ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error) {
	select {
	case p := <-s.in:
		return copy(b, p.text), p.peer, nil
	case <-s.closed:
		return 0, netip.AddrPort{}, net.ErrClosed
	}
}

func (s *fakeSocket) WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error) {
	select {
	case s.out <- packet{string(b), to}:
		return len(b), nil
	case <-s.closed:
		return 0, net.ErrClosed
	}
}

func (s *fakeSocket) Close() error { s.once.Do(func() { close(s.closed) }); return nil }

// A UDP flow keeps its endpoint until it was idle for udpIdle, in both directions. Then the client gets the next one.
func TestUDPFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		socket := newFakeSocket()
		b := newBalancer(clock.RealClock{})
		b.set(three, 0)
		u := newUDPPort(socket, b)
		dials := 0
		u.dial = func(endpoint netip.AddrPort) (net.Conn, error) {
			near, far := net.Pipe()
			dials++
			go func() { // answers each packet with its address
				buffer := make([]byte, 100)
				for {
					n, err := far.Read(buffer)
					if err != nil {
						return
					}
					if string(buffer[:n]) == "twice, please" {
						time.Sleep(udpIdle - time.Millisecond)
						_, _ = far.Write([]byte("first"))
						time.Sleep(udpIdle - time.Millisecond)
					}
					_, _ = far.Write([]byte(endpoint.String()))
				}
			}()
			return near, nil
		}
		go u.serve()
		from := netip.MustParseAddrPort("192.0.2.9:1000")
		ask := func(text string, answers ...string) {
			t.Helper()
			socket.in <- packet{text, from}
			for _, want := range answers {
				if got := <-socket.out; got.text != want || got.peer != from {
					t.Errorf("answer %+v; want %q", got, want)
				}
			}
		}
		ask("1", "10.0.0.1:80")
		time.Sleep(udpIdle - time.Millisecond)
		ask("2", "10.0.0.1:80")
		ask("twice, please", "first", "10.0.0.1:80")
		time.Sleep(udpIdle + time.Millisecond)
		synctest.Wait()
		if len(u.flows) != 0 {
			t.Errorf("an idle flow is still there")
		}
		ask("3", "10.0.0.2:80")
		from = netip.MustParseAddrPort("192.0.2.9:1001") // another flow
		ask("4", "10.0.0.3:80")
		if dials != 3 || len(u.flows) != 2 {
			t.Errorf("%d sockets were opened, %d are", dials, len(u.flows))
		}
		_ = u.Close()
	})
}

// An answer that is there when the flow becomes idle still reaches the client: a busy machine may read it late.
func TestUDPLateRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		socket := newFakeSocket()
		b := newBalancer(clock.RealClock{})
		b.set(three, 0)
		u := newUDPPort(socket, b)
		u.dial = func(netip.AddrPort) (net.Conn, error) {
			near, far := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, far) }()
			return &late{Conn: near}, nil
		}
		go u.serve()
		client := netip.MustParseAddrPort("192.0.2.9:1000")
		socket.in <- packet{"x", client}
		if got := <-socket.out; got.text != "answer" || got.peer != client {
			t.Errorf("%+v", got)
		}
		time.Sleep(2 * udpIdle)
		synctest.Wait()
		u.mu.Lock()
		if len(u.flows) > 0 {
			t.Errorf("%d flows after their time", len(u.flows))
		}
		u.mu.Unlock()
		_ = u.Close()
	})
}

// late is a connection whose answer came before its deadline and was not read by then.
type late struct {
	net.Conn
	reads int
}

func (l *late) Read(b []byte) (int, error) {
	switch l.reads++; l.reads {
	case 1:
		time.Sleep(udpIdle)
		return 0, os.ErrDeadlineExceeded
	case 2:
		return copy(b, "answer"), nil
	}
	return l.Conn.Read(b)
}

// A flow whose endpoint refuses it goes on at the next endpoint.
func TestUDPRefused(t *testing.T) {
	socket := newFakeSocket()
	b := newBalancer(clock.RealClock{})
	b.set(three, time.Hour)
	u := newUDPPort(socket, b)
	got := make(chan netip.AddrPort, 2)
	u.dial = func(endpoint netip.AddrPort) (net.Conn, error) {
		got <- endpoint
		near, far := net.Pipe()
		if endpoint == three[0] {
			near.Close()
			return refused{near}, nil
		}
		go func() { _, _ = io.Copy(io.Discard, far) }()
		return near, nil
	}
	go u.serve()
	socket.in <- packet{"x", netip.MustParseAddrPort("192.0.2.9:1000")}
	if first, second := <-got, <-got; first != three[0] || second != three[1] {
		t.Errorf("endpoints %v and %v", first, second)
	}
	_ = u.Close()
}

// refused is a connection that no packet can be written to.
type refused struct{ net.Conn }

func (refused) SetReadDeadline(time.Time) error { return nil }
func (refused) Write([]byte) (int, error)       { return 0, errors.New("connection refused") }

// The end of a request reaches the endpoint while the connection still carries the answer.
func TestHalfClose(t *testing.T) {
	endpoint, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer endpoint.Close()
	go func() {
		c, err := endpoint.Accept()
		if err != nil {
			return
		}
		all, _ := io.ReadAll(c) // ends with the client's half
		_, _ = c.Write(append([]byte("got "), all...))
		c.Close()
	}()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close() // refuses connections: the next endpoint gets this one
	b := newBalancer(clock.RealClock{})
	b.set(addrs(gone.Addr().String(), endpoint.Addr().String()), 0)
	portal, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	go serveTCP(portal, b)
	defer portal.Close()
	c, err := net.Dial("tcp", portal.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("request")); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(c); err != nil || string(answer) != "got request" {
		t.Errorf("answer %q, %v", answer, err)
	}
}

// Without an endpoint a connection is reset.
func TestNoEndpoint(t *testing.T) {
	portal, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	go serveTCP(portal, newBalancer(clock.RealClock{}))
	defer portal.Close()
	c, err := net.Dial("tcp", portal.Addr().String())
	if err != nil {
		return // reset already
	}
	defer c.Close()
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("read: %v; want a reset", err)
	}
}
