package userspace

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// dialTimeouts are how long the attempts to reach an endpoint take, each at the next one; as in kube-proxy.
var dialTimeouts = []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second}

// serveTCP accepts connections until the listener is closed. Connections that it has accepted live on.
func serveTCP(listener *net.TCPListener, b *balancer) {
	for {
		client, err := listener.AcceptTCP()
		if err != nil {
			if isClosed(err) {
				return
			}
			time.Sleep(acceptPause) // out of file descriptors
			continue
		}
		go carry(client, b)
	}
}

// acceptPause is the pause after an accept that failed.
const acceptPause = 10 * time.Millisecond

// carry connects a client with an endpoint, and resets the client's connection if none can be reached.
func carry(client *net.TCPConn, b *balancer) {
	defer client.Close()
	endpoint, err := connect(clientOf(client), b)
	if err != nil {
		_ = client.SetLinger(0)
		return
	}
	defer endpoint.Close()
	both(client, endpoint)
}

func clientOf(c net.Conn) netip.Addr {
	return c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
}

func connect(client netip.Addr, b *balancer) (*net.TCPConn, error) {
	var err error = errNoEndpoint
	for i, timeout := range dialTimeouts {
		to, ok := b.pick(client, i > 0)
		if !ok {
			return nil, errNoEndpoint
		}
		var c net.Conn
		dialer := net.Dialer{Timeout: timeout}
		if c, err = dialer.DialContext(context.Background(), "tcp", to.String()); err == nil {
			return c.(*net.TCPConn), nil
		}
	}
	return nil, err
}

// stream is one side of a connection.
type stream interface {
	io.ReadWriter
	CloseRead() error
	CloseWrite() error
}

// both copies in both directions until both have ended. The end of one direction leaves the other open.
func both(a, b stream) {
	var copies sync.WaitGroup
	one := func(to, from stream) {
		_, _ = io.Copy(to, from) // an error ends the direction like its end: the other side sees it
		_ = from.CloseRead()
		_ = to.CloseWrite()
	}
	copies.Go(func() { one(a, b) })
	copies.Go(func() { one(b, a) })
	copies.Wait()
}
