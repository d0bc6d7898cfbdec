package runner

import (
	"fmt"
	"time"

	"k8s.io/utils/clock"
)

const (
	// DefaultBurst is the burst of the token bucket that kube-proxy had until
	// its runner was rewritten, and that articles on kube-proxy describe.
	DefaultBurst = 2

	// DefaultFirstRetry is long enough for a lock holder (kubelet, a CNI
	// plugin) to finish, and far below the sync period.
	DefaultFirstRetry = time.Second

	// DefaultRetryInterval is kube-proxy's default sync period, after which it
	// retries.
	DefaultRetryInterval = 30 * time.Second
)

// Options of a Runner and of a Schedule.
type Options struct {
	// Name appears in errors, for instance "iptables IPv4".
	Name string
	// Policy that spaces the syncs; TokenBucket when empty.
	Policy Policy
	// MinInterval is the space between syncs, as Policy counts it. 0: none.
	MinInterval time.Duration
	// MaxInterval is the longest time without a sync, counted from the end of
	// the last one. 0: no sync by time alone.
	MaxInterval time.Duration
	// FirstRetry is the wait before the first retry after a failed sync; each
	// further one waits twice as long, up to RetryInterval. 0 means
	// DefaultFirstRetry, or RetryInterval if that is shorter.
	FirstRetry time.Duration
	// RetryInterval is the longest wait before a retry. 0 means
	// DefaultRetryInterval.
	RetryInterval time.Duration
	// Burst is how many syncs TokenBucket lets start without spacing. 0 means
	// DefaultBurst. CompletionToStart ignores it.
	Burst int
	// Clock drives a Runner; the real one when nil. A Schedule is told the
	// time and needs none.
	Clock clock.WithTicker
}

func (o Options) withDefaults() Options {
	if o.Policy == "" {
		o.Policy = TokenBucket
	}
	if o.RetryInterval == 0 {
		o.RetryInterval = DefaultRetryInterval
	}
	if o.FirstRetry == 0 {
		o.FirstRetry = min(DefaultFirstRetry, o.RetryInterval)
	}
	if o.Burst == 0 {
		o.Burst = DefaultBurst
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o
}

func (o Options) validate() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("runner %q: %s", o.Name, fmt.Sprintf(format, args...))
	}
	switch {
	case o.Policy != TokenBucket && o.Policy != CompletionToStart:
		return fail("policy %q is none of %q", o.Policy, Policies())
	case o.MinInterval < 0:
		return fail("minimum interval %v is negative", o.MinInterval)
	case o.MaxInterval < 0:
		return fail("maximum interval %v is negative", o.MaxInterval)
	case o.MaxInterval > 0 && o.MaxInterval < o.MinInterval:
		return fail("maximum interval %v is shorter than the minimum interval %v", o.MaxInterval, o.MinInterval)
	case o.FirstRetry < 0 || o.RetryInterval < 0:
		return fail("retry from %v to %v: negative", o.FirstRetry, o.RetryInterval)
	case o.FirstRetry > o.RetryInterval:
		return fail("first retry %v is longer than the retry interval %v", o.FirstRetry, o.RetryInterval)
	case o.Burst < 0:
		return fail("burst %d is negative", o.Burst)
	}
	return nil
}

// backOff is the wait before retry number n, counted from 1: FirstRetry,
// doubled n-1 times, at most RetryInterval.
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
