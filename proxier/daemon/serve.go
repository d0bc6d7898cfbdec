package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

const (
	// rebind is the wait between two attempts to listen, as in kube-proxy.
	rebind = 5 * time.Second
	// readHeaderTimeout bounds the time to read the headers of a request.
	readHeaderTimeout = 10 * time.Second
)

// serve opens the configured addresses for handler. If an address cannot be opened, bindAddressHardFail makes that an
// error; otherwise serve retries until it works. stop closes all listeners and waits.
func (o *Options) serve(ctx context.Context, handler http.Handler, fail context.CancelCauseFunc) (stop func(), err error) {
	cfg := o.Proxier.Config
	addresses := []string{cfg.MetricsBindAddress}
	if cfg.HealthzBindAddress != cfg.MetricsBindAddress {
		addresses = append(addresses, cfg.HealthzBindAddress)
	}
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	stop = func() { cancel(); serving.Wait() }
	for _, address := range addresses {
		listener, err := o.Listen("tcp", address)
		if err != nil && cfg.BindAddressHardFail {
			stop()
			return nil, fmt.Errorf("listen for metrics and health: %w", err)
		}
		serving.Go(func() { o.serveAt(ctx, address, listener, err, handler, fail) })
	}
	return stop, nil
}

// serveAt serves at one address until ctx ends. If err is set, listener is nil, and serveAt first retries to listen.
func (o *Options) serveAt(ctx context.Context, address string, listener net.Listener, err error, handler http.Handler, fail context.CancelCauseFunc) {
	for err != nil {
		klog.ErrorS(err, "Cannot listen for metrics and health, will retry", "address", address, "retryIn", rebind)
		select {
		case <-ctx.Done():
			return
		case <-o.Proxier.Clock.After(rebind):
		}
		listener, err = o.Listen("tcp", address)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: readHeaderTimeout}
	ended := context.AfterFunc(ctx, func() { _ = server.Close() }) // an interrupted scrape is useless anyway
	defer ended()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		fail(fmt.Errorf("serve metrics and health at %s: %w", address, err))
	}
}
