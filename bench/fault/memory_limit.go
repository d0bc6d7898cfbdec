package fault

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"synclab/bench/lab/cgroup"
	"synclab/scenarios"
)

func init() {
	register(Kind{Name: scenarios.FaultMemoryLimit, inject: (*Faults).limitMemory, spares: []spare{withoutProcess}, lasts: forTime, shows: changesVisible, endsSubject: true})
}

// limitMemory limits the memory of the subject and its children.
func (r *Faults) limitMemory(_ context.Context, d *activeFault) error {
	p := r.Host.Process()
	if p == nil {
		return errors.New("no subject runs as a separate process")
	}
	d.began = r.Clock.Now()
	r.Host.Mortal.Store(true)
	how := "in total (cgroup)"
	lift, err := cgroup.Limit(p.PID(), d.Bytes)
	if err != nil {
		how = fmt.Sprintf("of private writable memory per process (RLIMIT_DATA; %v)", err)
		if lift, err = limitData(p.PID(), d.Bytes); err != nil {
			return err
		}
	}
	d.stops = append(d.stops, lift)
	r.start(d)
	r.note(d, "the subject and its children are limited to %d MiB %s", d.Bytes>>20, how)
	return nil
}

// limitData limits the private writable memory of a process, and of each child that it starts later. RLIMIT_AS would not
// do: Go reserves far more addresses than it ever writes to.
func limitData(pid int, bytes int64) (end func() error, err error) {
	var before unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_DATA, nil, &before); err != nil {
		return nil, fmt.Errorf("RLIMIT_DATA of process %d: %w", pid, err)
	}
	limit := unix.Rlimit{Cur: min(uint64(bytes), before.Max), Max: before.Max}
	if err := unix.Prlimit(pid, unix.RLIMIT_DATA, &limit, nil); err != nil {
		return nil, fmt.Errorf("RLIMIT_DATA of process %d: %w", pid, err)
	}
	return func() error {
		err := unix.Prlimit(pid, unix.RLIMIT_DATA, &before, nil)
		if errors.Is(err, unix.ESRCH) {
			return nil // the limit ended it, or it was restarted
		}
		return err
	}, nil
}
