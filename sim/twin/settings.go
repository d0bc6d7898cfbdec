package twin

import (
	"errors"
	"fmt"
	"time"

	"synclab/proxier/runner"
)

// Settings of one node.
type Settings struct {
	// Cost of its syncs.
	Cost Cost
	// CPU is the CPU time of a sync that took so long, its Factor included. nil: one CPU was busy all the while.
	CPU func(kind SyncKind, changedServices, changes int, took time.Duration) time.Duration
	// Factor multiplies what syncs take: a slower machine has a higher one. 0: 1.
	Factor float64
	// Runner decides when to sync, as in the proxier; its Clock is not used.
	Runner runner.Options
	// FullInterval is after what time everything is written anew although nothing asked for it. 0: never, as in large
	// clusters.
	FullInterval time.Duration
	// FailProbability of each sync: nothing of it is installed, and it has taken its time.
	FailProbability float64
	// FullAfterFailure: whatever failed is followed by a full sync, as in kube-proxy. Otherwise only a full sync is.
	FullAfterFailure bool
	// Born is when the proxier starts, with a full sync. What was due before is in its first list, and no change to it.
	Born time.Duration
	// Seed of what the Cost draws and of failures.
	Seed uint64
}

// minSyncPeriod and the rest are kube-proxy's defaults, which Synclab's proxier shares.
const (
	minSyncPeriod = time.Second
	syncPeriod    = 30 * time.Second
	hourly        = time.Hour
)

// Synclab is a node with this repository's proxier and its defaults; large clusters have no hourly full sync.
func Synclab(cost Cost, large bool) Settings {
	s := Settings{
		Cost: cost, FullInterval: hourly,
		Runner: runner.Options{Policy: runner.TokenBucket, MinInterval: minSyncPeriod, MaxInterval: hourly, RetryInterval: syncPeriod},
	}
	if large {
		s.FullInterval = 0
	}
	return s
}

// KubeProxy is a node with kube-proxy 1.36 and its defaults: the time between an end and the next start, retries after
// the whole sync period, and everything written after a failure.
func KubeProxy(cost Cost, large bool) Settings {
	s := Synclab(cost, large)
	s.Runner.Policy = runner.CompletionToStart
	s.Runner.FirstRetry = syncPeriod
	s.FullAfterFailure = true
	return s
}

func (s *Settings) validate() error {
	switch {
	case s.Cost == nil:
		return errors.New("no cost")
	case s.Factor < 0 || s.FullInterval < 0 || s.Born < 0:
		return fmt.Errorf("factor %g, full interval %v, born %v: negative", s.Factor, s.FullInterval, s.Born)
	case s.FailProbability < 0 || s.FailProbability > 1:
		return fmt.Errorf("fail probability %g, want 0 to 1", s.FailProbability)
	}
	return nil
}

// Span is what part of time is simulated.
type Span struct {
	// Length: what is due from then on does not happen.
	Length time.Duration
	// Settle is how much longer syncs may start that something asked for, so that the last changes arrive. Those that
	// have not arrived then are counted as Waiting.
	Settle time.Duration
	// Since: changes that were due before are not counted, so that the full syncs of the start are not.
	Since time.Duration
}

func (s Span) validate() error {
	if s.Length <= 0 || s.Settle < 0 || s.Since < 0 {
		return fmt.Errorf("span %+v: want a length above 0, and nothing below", s)
	}
	return nil
}

// end is when no sync starts any more.
func (s Span) end() time.Duration { return s.Length + s.Settle }
