package direct

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"synclab/proxier/iptables"
	"synclab/proxier/kernel/xtables"
)

// Tables are the kernel's legacy tables of one family, in the network namespace of the calling thread.
type Tables struct {
	opts iptables.RestorerOptions
	iptables.Installed

	kept *keeper
	// replaced is called between a replacement and what gives its kept rules their counters: for tests.
	replaced func()

	mu        sync.Mutex
	revisions *revisions
	// listed are the user chains that EnsureJumps saw, by table, for whoever asks for them next: a large table is not
	// read twice for one sync.
	listed map[iptables.Table][]string
}

// New takes of the options the family, the lock with the wait for it, and the clock.
func New(opts iptables.RestorerOptions) (*Tables, error) {
	if xtables.Of(opts.Family) == nil {
		return nil, fmt.Errorf("family %q has no tables", opts.Family)
	}
	if opts.Wait == 0 {
		opts.Wait = 5 * time.Second // as through the tool
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	t := &Tables{
		opts: opts, Installed: iptables.Installed{Variant: iptables.Legacy, Family: opts.Family}, listed: map[iptables.Table][]string{},
		kept: &keeper{tables: map[iptables.Table]*xtables.Table{}},
	}
	runtime.AddCleanup(t, (*keeper).close, t.kept) // memory that Go does not manage
	return t, nil
}

// Tool is what runs are called by.
const Tool = "setsockopt"

// exitOther is the exit status that iptables-restore has for what is not the payload's fault.
const exitOther = 4

// Restore hands a payload to the kernel, atomically for each table. The kernel does not say which rule it refuses: then
// the line to blame is the table's COMMIT. The end of ctx ends the wait for the lock, and comes between two tables.
func (t *Tables) Restore(ctx context.Context, p *iptables.Payload) (iptables.Run, error) {
	run, err := t.give(ctx, &script{segments: p.Segments(), written: p.Written})
	if err == nil {
		return run, nil
	}
	failed := &iptables.RestoreError{Tool: Tool, ExitCode: exitOther, Err: err}
	var line *lineError
	if errors.As(err, &line) {
		failed.ExitCode, failed.Line, failed.Owner = 1, int(line.line), p.OwnerOf(int(line.line))
	}
	run.ExitCode = failed.ExitCode
	return run, failed
}

func (t *Tables) give(ctx context.Context, s *script) (iptables.Run, error) {
	return t.account(func(socket *xtables.Socket) (int, error) { return t.handOver(ctx, socket, s) })
}

// account measures what a function costs that talks to the kernel through a socket: the socket's time is the kernel's,
// and User what CPU time this thread, which the function keeps, took beside it.
func (t *Tables) account(do func(*xtables.Socket) (int, error)) (iptables.Run, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start, before := t.opts.Clock.Now(), threadTime()
	socket, err := xtables.Open(t.opts.Family)
	if err != nil {
		return iptables.Run{Tool: Tool, Wall: t.opts.Clock.Since(start)}, err
	}
	defer socket.Close()
	socket.Clock = t.opts.Clock
	size, err := do(socket)
	return iptables.Run{
		Tool: Tool, Wall: t.opts.Clock.Since(start), Bytes: size,
		User: max(0, threadTime()-before-socket.Spent), System: socket.Spent,
	}, err
}

// threadTime is the CPU time of this thread. getrusage would count user and system apart, but in ticks of milliseconds.
func threadTime() time.Duration {
	var used unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &used) != nil {
		return 0
	}
	return time.Duration(used.Nano())
}

// Chains are the names of the user-defined chains of a table.
func (t *Tables) Chains(table iptables.Table) ([]string, error) {
	t.mu.Lock()
	names, listed := t.listed[table]
	delete(t.listed, table)
	t.mu.Unlock()
	if listed {
		return names, nil
	}
	return t.Installed.Chains(table)
}

// askRevisions asks the kernel once.
func (t *Tables) askRevisions(socket *xtables.Socket) (revisions, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.revisions == nil {
		r, err := askRevisions(socket)
		if err != nil {
			return r, err
		}
		t.revisions = &r
	}
	return *t.revisions, nil
}
