package runner

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// subject is a runner whose syncs take a set time, fail a set number of times and record their starts. It runs in a
// synctest bubble, so its time is virtual.
type subject struct {
	*Runner
	birth time.Time
	takes time.Duration

	mu     sync.Mutex
	fails  int // syncs that still fail
	starts []time.Duration
}

func begin(t *testing.T, opts Options, s *subject) (cancel func() error) {
	t.Helper()
	s.birth = time.Now()
	r, err := New(opts, func(ctx context.Context) error {
		s.mu.Lock()
		s.starts = append(s.starts, time.Since(s.birth))
		s.mu.Unlock()
		time.Sleep(s.takes)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.fails > 0 {
			s.fails--
			return errBroken
		}
		return ctx.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Runner = r
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return func() error { stop(); return <-ended }
}

func (s *subject) want(t *testing.T, want ...time.Duration) {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.starts, want) {
		t.Errorf("syncs started at %v, want %v", s.starts, want)
	}
}

func TestTokenBucketUnderSteadyTriggers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &subject{takes: 100 * time.Millisecond}
		cancel := begin(t, Options{Policy: TokenBucket, MinInterval: time.Second}, s)
		for range 40 { // for 3.2 s
			s.Trigger()
			time.Sleep(80 * time.Millisecond)
		}
		s.want(t, 0, 100*time.Millisecond, time.Second, 2*time.Second, 3*time.Second)
		if err := cancel(); !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	})
}

func TestCompletionToStartUnderSteadyTriggers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &subject{takes: 500 * time.Millisecond}
		cancel := begin(t, Options{Policy: CompletionToStart, MinInterval: time.Second}, s)
		for range 40 {
			s.Trigger()
			time.Sleep(80 * time.Millisecond)
		}
		s.want(t, 0, 1500*time.Millisecond, 3*time.Second)
		cancel()
	})
}

func TestTriggersCoalesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &subject{takes: time.Second}
		cancel := begin(t, Options{}, s)
		s.Trigger()
		synctest.Wait() // the first sync is running
		for range 100 {
			s.Trigger()
		}
		if err := s.WaitIdle(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.want(t, 0, time.Second)

		s.Trigger()
		time.Sleep(500 * time.Millisecond) // the sync of 1 s is running
		s.Trigger()
		s.Trigger()
		if err := s.WaitIdle(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.want(t, 0, time.Second, 2*time.Second, 3*time.Second)
		cancel()
	})
}

// TestEveryFailedSyncIsRetried makes the first sync fail and triggers no other one.
func TestEveryFailedSyncIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &subject{fails: 4}
		cancel := begin(t, Options{MinInterval: 10 * time.Millisecond, RetryInterval: 3 * time.Second}, s)
		s.Trigger()
		synctest.Wait()
		if err := s.WaitIdle(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.want(t, 0, time.Second, 3*time.Second, 6*time.Second, 9*time.Second)
		time.Sleep(time.Hour)
		s.want(t, 0, time.Second, 3*time.Second, 6*time.Second, 9*time.Second)
		cancel()
	})
}

func TestRetrySurvivesTriggers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &subject{fails: 3}
		cancel := begin(t, Options{FirstRetry: 10 * time.Second}, s)
		s.Trigger()
		time.Sleep(9 * time.Second)
		s.Trigger() // fails, and must not move the retry from 10 s to 19 s or later
		time.Sleep(11 * time.Second)
		s.want(t, 0, 9*time.Second, 10*time.Second)
		time.Sleep(time.Hour)
		s.want(t, 0, 9*time.Second, 10*time.Second, 30*time.Second)
		cancel()
	})
}

func TestMaxInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &subject{takes: time.Second}
		cancel := begin(t, Options{MaxInterval: time.Minute}, s)
		time.Sleep(3 * time.Minute)
		s.want(t, time.Minute, 2*time.Minute+time.Second)
		cancel()
	})
}

func TestCancelInTheMiddleOfASync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered := make(chan struct{})
		r, err := New(Options{Name: "node-1"}, func(ctx context.Context) error {
			close(entered)
			<-ctx.Done()
			time.Sleep(time.Second) // cleans up before it returns
			return ctx.Err()
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		r.Trigger()
		<-entered
		cancel()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("Run left a running sync behind")
		default:
		}
		if err := r.WaitIdle(t.Context()); !errors.Is(err, ErrStopped) {
			t.Errorf("WaitIdle after the loop ended with a failed sync: %v", err)
		}
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
		if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), `"node-1"`) {
			t.Errorf("second Run: %v", err)
		}
	})
}

func TestWaitIdleEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &subject{fails: 1 << 20}
		cancel := begin(t, Options{}, s)
		s.Trigger()
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		err := s.WaitIdle(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errBroken) {
			t.Errorf("WaitIdle of a runner that always fails: %v, want the deadline and the cause", err)
		}
		cancel()
	})
}

func TestPanicIsNotSwallowed(t *testing.T) {
	r, err := New(Options{}, func(context.Context) error { panic("boom") })
	if err != nil {
		t.Fatal(err)
	}
	r.Trigger()
	defer func() {
		if recover() != "boom" {
			t.Error("the panic did not come through")
		}
		if err := r.WaitIdle(t.Context()); !errors.Is(err, ErrStopped) {
			t.Errorf("WaitIdle after a panic: %v", err)
		}
	}()
	_ = r.Run(t.Context())
}
