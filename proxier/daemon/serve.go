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
	// rebind is how long after a failure to listen the next try follows, as in kube-proxy.
	rebind = 5 * time.Second
	// readHeaderTimeout bounds how long a client may take over one request.
	readHeaderTimeout = 10 * time.Second
)

// serve opens the configured addresses for the handler. An address that cannot be had ends everything with
// bindAddressHardFail; without it, it is tried again until it can be. The result closes what was opened, and waits.
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
			return nil, fmt.Errorf("metrics and health: %w", err)
		}
		serving.Go(func() { o.serveAt(ctx, address, listener, err, handler, fail) })
	}
	return stop, nil
}

// serveAt serves at one address until ctx ends. listener is nil when err says why it could not be opened yet.
func (o *Options) serveAt(ctx context.Context, address string, listener net.Listener, err error, handler http.Handler, fail context.CancelCauseFunc) {
	for err != nil {
		klog.ErrorS(err, "Metrics and health are not served yet", "address", address, "retryIn", rebind)
		select {
		case <-ctx.Done():
			return
		case <-o.Proxier.Clock.After(rebind):
		}
		listener, err = o.Listen("tcp", address)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: readHeaderTimeout}
	ended := context.AfterFunc(ctx, func() { _ = server.Close() }) // a scrape that is cut off is of no use to anybody
	defer ended()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		fail(fmt.Errorf("metrics and health at %s: %w", address, err))
	}
}
