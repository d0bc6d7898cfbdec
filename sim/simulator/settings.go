package simulator

import (
	"errors"
	"fmt"
	"time"

	"synclab/proxier/runner"
)

// Settings are the settings of one node.
type Settings struct {
	// Cost of its syncs.
	Cost Cost
	// CPU is the CPU time of a sync of duration took, Factor included. nil: one CPU is busy all the time.
	CPU func(kind SyncKind, changedServices, changes int, took time.Duration) time.Duration
	// Factor multiplies the duration of syncs: a slower machine has a higher one. 0: 1.
	Factor float64
	// Runner decides when to sync, as in the proxier; its Clock is not used.
	Runner runner.Options
	// FullInterval is the time after which a full sync runs without a request. 0: never.
	FullInterval time.Duration
	// FailProbability of each sync: a failed sync installs nothing, but takes its time.
	FailProbability float64
	// FullAfterFailure: a full sync follows every failed sync, as in kube-proxy. Otherwise it follows only a full one.
	FullAfterFailure bool
	// Born is when the proxier starts, with a full sync. Events due before are in its first list, and are no changes.
	Born time.Duration
	// Seed determines what the Cost draws, and failures.
	Seed uint64
}

// minSyncPeriod and the rest are kube-proxy's defaults, which Synclab's proxier shares.
const (
	minSyncPeriod = time.Second
	syncPeriod    = 30 * time.Second
	hourly        = time.Hour
)

// Synclab returns a node with this repository's proxier and its defaults. hourlyFull: a full sync runs every hour.
func Synclab(cost Cost, hourlyFull bool) Settings {
	s := Settings{
		Cost: cost, FullInterval: hourly,
		Runner: runner.Options{Policy: runner.TokenBucket, MinInterval: minSyncPeriod, MaxInterval: hourly, RetryInterval: syncPeriod},
	}
	if !hourlyFull {
		s.FullInterval = 0
	}
	return s
}

// KubeProxy returns a node with kube-proxy 1.36 and its defaults. The interval runs from the end of a sync to the next
// start. Retries wait for the whole sync period, and a full sync follows a failure.
func KubeProxy(cost Cost, hourlyFull bool) Settings {
	s := Synclab(cost, hourlyFull)
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
		return fmt.Errorf("factor %g, full interval %v, born %v: want no negative value", s.Factor, s.FullInterval, s.Born)
	case s.FailProbability < 0 || s.FailProbability > 1:
		return fmt.Errorf("fail probability %g, want 0 to 1", s.FailProbability)
	}
	return nil
}

// Span is the part of time that is simulated.
type Span struct {
	// Length is the end of the events: those due from then on are left out.
	Length time.Duration
	// Settle is how long after Length requested syncs may still start, so that the last changes arrive. Changes that
	// have not arrived then count as Waiting.
	Settle time.Duration
	// Since: changes due before are not counted, which excludes the full syncs of the start.
	Since time.Duration
}

func (s Span) validate() error {
	if s.Length <= 0 || s.Settle < 0 || s.Since < 0 {
		return fmt.Errorf("span %+v: want a length above 0 and no negative value", s)
	}
	return nil
}

// end returns the time from which no sync starts.
func (s Span) end() time.Duration { return s.Length + s.Settle }
