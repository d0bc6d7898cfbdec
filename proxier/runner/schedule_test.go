package runner

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"
)

var (
	epoch     = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	errBroken = errors.New("restore broke")
)

// TestScheduleTranscripts makes calls on a schedule and checks Next after each. Times count from NewSchedule.
func TestScheduleTranscripts(t *testing.T) {
	const never = time.Duration(-1)
	type call struct {
		at   time.Duration
		do   string // request, start, ok, fail
		next time.Duration
	}
	tests := []struct {
		name  string
		opts  Options
		calls []call
	}{
		{
			name: "token bucket: two back to back, then spacing between starts",
			opts: Options{Policy: TokenBucket, MinInterval: time.Second},
			calls: []call{
				{0, "request", 0},
				{0, "start", never},
				{100 * time.Millisecond, "ok", never},
				{200 * time.Millisecond, "request", 200 * time.Millisecond},
				{200 * time.Millisecond, "start", never},
				{300 * time.Millisecond, "ok", never},
				// Two tokens spent, 0.2 refilled: the third comes at 1 s.
				{400 * time.Millisecond, "request", time.Second},
				{time.Second, "start", never},
				{1100 * time.Millisecond, "ok", never},
				{1200 * time.Millisecond, "request", 2 * time.Second},
			},
		},
		{
			name: "token bucket: a sync longer than the interval is followed at once",
			opts: Options{Policy: TokenBucket, MinInterval: time.Second, Burst: 1},
			calls: []call{
				{0, "request", 0},
				{0, "start", never},
				{time.Second, "request", never},
				{5 * time.Second, "ok", time.Second},
				{5 * time.Second, "start", never},
				{5 * time.Second, "ok", never},
				{5 * time.Second, "request", 6 * time.Second},
			},
		},
		{
			name: "completion to start: a gap after each end, however long the sync",
			opts: Options{Policy: CompletionToStart, MinInterval: time.Second},
			calls: []call{
				{0, "request", 0},
				{0, "start", never},
				{time.Second, "request", never},
				{5 * time.Second, "ok", 6 * time.Second},
				{6 * time.Second, "start", never},
				{6 * time.Second, "ok", never},
				{20 * time.Second, "request", 20 * time.Second},
			},
		},
		{
			name: "requests coalesce, the oldest counts",
			opts: Options{Policy: CompletionToStart, MinInterval: time.Second},
			calls: []call{
				{3 * time.Second, "request", 3 * time.Second},
				{4 * time.Second, "request", 3 * time.Second},
				{4 * time.Second, "start", never},
				{4 * time.Second, "ok", never},
			},
		},
		{
			name: "retries back off to the retry interval; success forgets them",
			opts: Options{Policy: CompletionToStart, RetryInterval: 5 * time.Second},
			calls: []call{
				{0, "request", 0},
				{0, "start", never},
				{0, "fail", time.Second},
				{time.Second, "start", never},
				{time.Second, "fail", 3 * time.Second},
				{3 * time.Second, "start", never},
				{3 * time.Second, "fail", 7 * time.Second},
				{7 * time.Second, "start", never},
				{7 * time.Second, "fail", 12 * time.Second},
				{12 * time.Second, "start", never},
				{12 * time.Second, "ok", never},
				{20 * time.Second, "request", 20 * time.Second},
				{20 * time.Second, "start", never},
				{20 * time.Second, "fail", 21 * time.Second},
			},
		},
		{
			name: "a request runs ahead of the retry and leaves it where it was",
			opts: Options{Policy: CompletionToStart, FirstRetry: 10 * time.Second},
			calls: []call{
				{0, "request", 0},
				{0, "start", never},
				{0, "fail", 10 * time.Second},
				{4 * time.Second, "request", 4 * time.Second},
				{4 * time.Second, "start", never},
				{4 * time.Second, "fail", 10 * time.Second},
				{10 * time.Second, "start", never},
				{10 * time.Second, "fail", 30 * time.Second},
				{11 * time.Second, "request", 11 * time.Second},
				{11 * time.Second, "start", never},
				{11 * time.Second, "ok", never},
			},
		},
		{
			name: "the policy holds for retries too",
			opts: Options{Policy: CompletionToStart, MinInterval: 3 * time.Second},
			calls: []call{
				{0, "request", 0},
				{0, "start", never},
				{0, "fail", 3 * time.Second},
			},
		},
		{
			name: "maximum interval, from birth and then from each end",
			opts: Options{Policy: TokenBucket, MinInterval: time.Second, MaxInterval: time.Minute},
			calls: []call{
				{0, "request", 0},
				{0, "start", never},
				{5 * time.Second, "ok", 65 * time.Second},
				{65 * time.Second, "start", never},
				{70 * time.Second, "ok", 130 * time.Second},
				{80 * time.Second, "request", 80 * time.Second},
				{80 * time.Second, "start", never},
				{80 * time.Second, "ok", 140 * time.Second},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := NewSchedule(tt.opts, epoch)
			if err != nil {
				t.Fatal(err)
			}
			for i, c := range tt.calls {
				now := epoch.Add(c.at)
				switch c.do {
				case "request":
					s.Request(now)
				case "start":
					s.Started(now)
				case "ok":
					s.Finished(now, nil)
				case "fail":
					s.Finished(now, errBroken)
				}
				got := never
				if at, due := s.Next(); due {
					got = at.Sub(epoch)
				}
				if got != c.next {
					t.Fatalf("call %d, %s at %v: next at %v, want %v", i, c.do, c.at, got, c.next)
				}
			}
		})
	}
}

// TestScheduleInvariants drives both policies with random requests, durations and failures. Each sync starts exactly at
// Next. The test checks what must be true in any history.
func TestScheduleInvariants(t *testing.T) {
	const seed, minInterval, maxInterval = 7, 700 * time.Millisecond, 20 * time.Second
	const rounding = 2 * time.Microsecond // see takeToken
	for _, policy := range Policies() {
		rng := rand.New(rand.NewPCG(seed, seed))
		s, err := NewSchedule(Options{Policy: policy, MinInterval: minInterval, MaxInterval: maxInterval, RetryInterval: 5 * time.Second}, epoch)
		if err != nil {
			t.Fatal(err)
		}
		now, end := epoch, epoch
		var starts []time.Time
		failed := false
		for i := range 5000 {
			if rng.IntN(3) > 0 {
				now = now.Add(time.Duration(rng.Int64N(int64(2 * time.Second))))
				s.Request(now)
			}
			at, due := s.Next()
			if !due {
				t.Fatalf("%s, seed %d, step %d: nothing due although there is a maximum interval", policy, seed, i)
			}
			if at.Before(now) {
				at = now
			}
			if wait := at.Sub(end); wait > maxInterval+2*time.Second {
				t.Fatalf("%s, seed %d, step %d: %v without a sync", policy, seed, i, wait)
			}
			if failed && at.Sub(end) > 5*time.Second+2*time.Second {
				t.Fatalf("%s, seed %d, step %d: a failed sync was retried only after %v", policy, seed, i, at.Sub(end))
			}
			if policy == CompletionToStart && i > 0 && at.Sub(end) < minInterval {
				t.Fatalf("seed %d, step %d: started %v after an end", seed, i, at.Sub(end))
			}
			starts = append(starts, at)
			if n := len(starts); policy == TokenBucket && n > DefaultBurst {
				if span := at.Sub(starts[n-1-DefaultBurst]); span+rounding < minInterval {
					t.Fatalf("seed %d, step %d: %d starts within %v", seed, i, DefaultBurst+1, span)
				}
			}
			s.Started(at)
			end = at.Add(time.Duration(rng.Int64N(int64(time.Second))))
			now = end
			var syncErr error
			if failed = rng.IntN(4) == 0; failed {
				syncErr = errBroken
			}
			s.Finished(end, syncErr)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, opts := range map[string]Options{
		"unknown policy":     {Policy: "now-and-then"},
		"negative minimum":   {MinInterval: -1},
		"negative maximum":   {MaxInterval: -1},
		"maximum < minimum":  {MinInterval: 2, MaxInterval: 1},
		"negative burst":     {Burst: -1},
		"first retry > last": {FirstRetry: 2 * time.Second, RetryInterval: time.Second},
	} {
		if _, err := NewSchedule(opts, epoch); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := New(Options{}, nil); err == nil {
		t.Error("a runner without a sync function was accepted")
	}
}
