package runner

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/utils/clock"
)

const (
	// DefaultBurst is the burst of kube-proxy's token bucket before its runner was rewritten. Articles on kube-proxy
	// describe that bucket.
	DefaultBurst = 2

	// DefaultFirstRetry is long enough for a lock holder (kubelet, a CNI plugin) to finish, and far below the sync
	// period.
	DefaultFirstRetry = time.Second

	// DefaultRetryInterval is kube-proxy's default sync period, which is its retry interval.
	DefaultRetryInterval = 30 * time.Second
)

// Options configures a Runner or a Schedule.
type Options struct {
	// Name appears in errors, for instance "iptables IPv4".
	Name string
	// Policy that spaces the syncs; TokenBucket when empty.
	Policy Policy
	// MinInterval is the minimum space between syncs, as Policy counts it. 0: none.
	MinInterval time.Duration
	// MaxInterval is the longest time without a sync, from the end of the last one. 0: no sync by time alone.
	MaxInterval time.Duration
	// FirstRetry is the wait before the first retry after a failed sync. Each further wait is twice as long, up to
	// RetryInterval. 0 means DefaultFirstRetry, or RetryInterval if that is shorter.
	FirstRetry time.Duration
	// RetryInterval is the longest wait before a retry. 0 means DefaultRetryInterval.
	RetryInterval time.Duration
	// Burst is how many syncs TokenBucket lets start without spacing. 0 means DefaultBurst. CompletionToStart ignores
	// it.
	Burst int
	// Clock drives a Runner; nil: the real clock. A Schedule gets the time with each call and does not use it.
	Clock clock.WithTicker
}

func (o Options) withDefaults() Options {
	o.Policy = cmp.Or(o.Policy, TokenBucket)
	o.RetryInterval = cmp.Or(o.RetryInterval, DefaultRetryInterval)
	o.FirstRetry = cmp.Or(o.FirstRetry, min(DefaultFirstRetry, o.RetryInterval))
	o.Burst = cmp.Or(o.Burst, DefaultBurst)
	o.Clock = cmp.Or[clock.WithTicker](o.Clock, clock.RealClock{})
	return o
}

func (o Options) validate() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("runner %q: %s", o.Name, fmt.Sprintf(format, args...))
	}
	switch {
	case o.Policy != TokenBucket && o.Policy != CompletionToStart:
		return fail("unknown policy %q; want one of %q", o.Policy, Policies())
	case o.MinInterval < 0:
		return fail("minimum interval %v is negative", o.MinInterval)
	case o.MaxInterval < 0:
		return fail("maximum interval %v is negative", o.MaxInterval)
	case o.MaxInterval > 0 && o.MaxInterval < o.MinInterval:
		return fail("maximum interval %v is shorter than the minimum interval %v", o.MaxInterval, o.MinInterval)
	case o.FirstRetry < 0 || o.RetryInterval < 0:
		return fail("first retry %v or retry interval %v is negative", o.FirstRetry, o.RetryInterval)
	case o.FirstRetry > o.RetryInterval:
		return fail("first retry %v is longer than the retry interval %v", o.FirstRetry, o.RetryInterval)
	case o.Burst < 0:
		return fail("burst %d is negative", o.Burst)
	}
	return nil
}

// backOff is the wait before retry number n, from 1: FirstRetry, doubled n-1 times, at most RetryInterval.
func (o Options) backOff(n int) time.Duration {
	wait := o.FirstRetry
	for range n - 1 {
		if wait >= o.RetryInterval/2 {
			return o.RetryInterval
		}
		wait *= 2
	}
	return wait
}
