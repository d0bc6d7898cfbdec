package virtualtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/backend"
	"synclab/proxier/iptables"
	"synclab/proxier/iptables/rule"
	"synclab/proxier/tracker"
)

// tables are the iptables tables of one family: a model with time, faults and external writes. They outlive the
// proxier.
type tables struct {
	family corev1.IPFamily
	legacy bool

	mu    sync.Mutex
	rng   *rand.Rand // for durations and outcomes
	model *iptables.Model
	// ways are the outcomes of the next restores.
	ways []way
	// lockedUntil is the time until which another process holds the xtables lock.
	lockedUntil time.Time
	// refused Service ports; atCommit: the error does not name the line.
	refused    func(tracker.ServicePortName) bool
	atCommit   bool
	unreadable int
	// before and after are external writes around the next restore.
	before, after []uint64
	restored      bool
	// foreign are the foreign rules, which must not change.
	foreign string
	// referred chains of the proxier may stay, empty, because foreign rules jumped to them.
	referred map[string]bool
	writers  int // running restores
	raced    bool
}

// way is the outcome of a restore.
type way int

const (
	fails         way = iota // no change
	killed                   // before any change
	killedBetween            // between two tables
	killedAfter              // after all changes
	noMemory
	slow // succeeds
	waysToEnd
)

// errKilled aborts a model's restore.
var errKilled = errors.New("signal: killed")

// toolWait is the longest time that a restore waits for the lock.
const toolWait = 5 * time.Second

func newTables(family corev1.IPFamily, s Setting) *tables {
	t := &tables{
		family: family, legacy: s.Variant == iptables.Legacy, model: iptables.NewModel(family), referred: map[string]bool{},
		rng: rand.New(rand.NewPCG(s.Seed, uint64(len(family))<<32+uint64(family[3]))),
	}
	return t
}

// pause lets virtual time pass.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// between returns a random duration between two durations, to the nanosecond.
func (t *tables) between(least, most time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return least + time.Duration(t.rng.Int64N(int64(most-least)))
}

// takeLock waits for the lock like the tools. The nft variant has no lock.
func (t *tables) takeLock(ctx context.Context) error {
	t.mu.Lock()
	left := time.Until(t.lockedUntil)
	t.mu.Unlock()
	if !t.legacy || left <= 0 {
		return nil
	}
	if err := pause(ctx, min(left, toolWait)); err != nil {
		return failure(-1, "", err)
	}
	if left > toolWait {
		return failure(4, "Another app is currently holding the xtables lock; still 0s 0us time ahead to have a chance to grab the lock...", errors.New("exit status 4"))
	}
	return nil
}

func failure(code int, stderr string, err error) *iptables.RestoreError {
	return &iptables.RestoreError{Tool: "virtual", ExitCode: code, Stderr: stderr, Err: err}
}

// Restore applies a payload in virtual time.
func (t *tables) Restore(ctx context.Context, p *iptables.Payload) (iptables.Run, error) {
	began := time.Now()
	run := iptables.Run{Tool: "virtual", Bytes: p.Size(), ExitCode: -1}
	end := func(err error) (iptables.Run, error) {
		run.Wall = time.Since(began)
		var failed *iptables.RestoreError
		switch {
		case err == nil:
			run.ExitCode = 0
		case errors.As(err, &failed):
			run.ExitCode = failed.ExitCode
		}
		return run, err
	}
	t.mu.Lock()
	t.writers++
	way, ended := t.way()
	t.mu.Unlock()
	defer func() { t.mu.Lock(); t.writers--; t.mu.Unlock() }()
	if err := t.takeLock(ctx); err != nil {
		return end(err)
	}
	least, most := time.Millisecond, 40*time.Millisecond
	if ended && way == slow {
		least, most = 10*time.Second, 100*time.Second
	}
	if err := pause(ctx, t.between(least, most)); err != nil {
		if ended = true; way > killedAfter || way < killed {
			way = killed
		}
		return end(errors.Join(err, t.write(p, way, ended)))
	}
	if err := t.write(p, way, ended); err != nil {
		return end(err)
	}
	if err := pause(ctx, t.between(time.Millisecond, 10*time.Millisecond)); err != nil {
		return end(failure(-1, "", err)) // all changes were made
	}
	return end(nil)
}

// way returns the outcome of this restore, and whether it is injected.
func (t *tables) way() (way, bool) {
	if len(t.ways) == 0 {
		// If the proxier is killed during the restore, the restore ends here.
		return killed + way(t.rng.IntN(3)), false
	}
	w := t.ways[0]
	t.ways = t.ways[1:]
	return w, true
}

// write changes the tables.
func (t *tables) write(p *iptables.Payload, way way, ended bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, pick := range t.before {
		t.externalWrite(pick)
	}
	t.before = nil
	if !ended {
		way = slow
	}
	switch way {
	case fails:
		return failure(1, "", errors.New("exit status 1"))
	case killed:
		return failure(-1, "", errKilled)
	case noMemory:
		return failure(4, "iptables-restore: line 1 failed: RULE_APPEND failed (Cannot allocate memory)", errors.New("exit status 4"))
	case killedBetween:
		t.apply(p, 1)
		return failure(-1, "", errKilled)
	}
	line, commits := t.refusedLine(p)
	if line > 0 {
		if commits > 0 {
			t.apply(p, commits)
		}
		err := failure(1, fmt.Sprintf("iptables-restore: line %d failed", line), errors.New("exit status 1"))
		err.Line, err.Owner = line, p.OwnerOf(line)
		return err
	}
	_, err := t.model.Restore(context.Background(), p)
	t.restored = true
	if way == killedAfter && err == nil {
		return failure(-1, "", errKilled)
	}
	return err
}

// apply applies the first tables of a payload.
func (t *tables) apply(p *iptables.Payload, commits int) {
	t.model.Committed = func() error {
		if commits--; commits == 0 {
			return errKilled
		}
		return nil
	}
	_, _ = t.model.Restore(context.Background(), p) // ends there, or earlier at a line that is rejected anyway
	t.model.Committed = nil
}

// refusedLine returns the first rejected line, from 1, and the number of tables before it; 0 if there is none.
func (t *tables) refusedLine(p *iptables.Payload) (line, commits int) {
	if t.refused == nil {
		return 0, 0
	}
	found := false
	for text := range bytes.Lines(p.Text()) {
		line++
		if string(text) == "COMMIT\n" {
			if found {
				return line, commits
			}
			commits++
			continue
		}
		if !bytes.HasPrefix(text, []byte("-A")) {
			continue
		}
		if owner := p.OwnerOf(line); owner.IsPort() && t.refused(owner.Port) {
			if !t.atCommit {
				return line, commits
			}
			found = true
		}
	}
	return 0, 0
}

// errUnreadable is the error of a failed read.
var errUnreadable = errors.New("interrupted system call")

func (t *tables) readable() error {
	if t.unreadable > 0 {
		t.unreadable--
		return errUnreadable
	}
	return nil
}

// EnsureJumps adds missing base chains and jumps.
func (t *tables) EnsureJumps(ctx context.Context, existing map[iptables.Table][]string) error {
	if err := t.takeLock(ctx); err != nil {
		return err
	}
	if err := pause(ctx, t.between(time.Millisecond, 30*time.Millisecond)); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.readable(); err != nil {
		return err
	}
	return t.model.EnsureJumps(ctx, existing)
}

// Chains returns the names of the user-defined chains of a table.
func (t *tables) Chains(table iptables.Table) ([]string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.readable(); err != nil {
		return nil, err
	}
	return t.model.Chains(table)
}

// Rules returns the rules of some chains of a table.
func (t *tables) Rules(table iptables.Table, chains ...string) (map[string][]rule.Rule, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.readable(); err != nil {
		return nil, err
	}
	return t.model.Rules(table, chains...)
}

// ChainRules returns the rules of nat.
func (t *tables) ChainRules() (iptables.ChainRules, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.readable(); err != nil {
		return nil, err
	}
	return t.model.Clone().ChainRules()
}

// Fingerprint returns a fingerprint that changes if a table may have changed.
func (t *tables) Fingerprint() (iptables.Fingerprint, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.restored {
		t.restored = false
		for _, pick := range t.after {
			t.externalWrite(pick)
			t.raced = true
		}
		t.after = nil
	}
	return t.model.Fingerprint()
}

// Others returns a fingerprint that changes if another process wrote to a table, regardless of own restores.
func (t *tables) Others(own map[iptables.Table]iptables.Count) (iptables.Fingerprint, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.model.Others(own)
}

// Drift compares the tables with the expected ones, when the comparison is made: it locks them. Reading jumps takes the
// lock of xtables.
func (t *tables) Drift(want iptables.Expected) backend.Comparison {
	return func(ctx context.Context) (string, error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if err := t.readable(); err != nil {
			return "", err
		}
		if t.legacy && time.Until(t.lockedUntil) > 0 {
			return "", errors.New("exit status 4: the lock is taken")
		}
		return t.model.Drift(want)(ctx)
	}
}

func (t *tables) saved() string { return savedOf(t.model) }
