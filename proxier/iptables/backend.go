package iptables

import (
	"context"
	"fmt"
	"slices"
	"time"

	"synclab/proxier/backend"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// Options of a Backend.
type Options struct {
	backend.Options
	// Tables that it writes; see Host, Model.
	Tables Tables
	// Layout of the rules.
	Layout Layout
	// Variant of what Tables are: with Nft, chains may be made apart from the restore that leads to them.
	Variant Variant
	// Batch is how many names of chains, those they jump to included, one restore of several takes. 0: as measured.
	Batch int
	// SendLimit is how many bytes of netlink messages one restore may send; 0: any number. See kernel.SendLimit.
	SendLimit int
}

// Backend keeps iptables tables as a plan wants them. Not safe for concurrent use.
type Backend struct {
	opts     Options
	rules    *Ruleset
	tables   Tables
	pace     *pace
	refusals map[tracker.ServicePortName]error
	// noAccounting and noBPF: the matches nfacct and bpf turned out not to work; provenBPF: the latter did not.
	noAccounting, noBPF, provenBPF bool
	// doubted is when they turned out not to, last.
	doubted time.Time
}

// doubtFor is how long a match that turned out not to work is done without, at least: something else may have been in
// the way, so the next full sync after that tries it again.
const doubtFor = 30 * time.Minute

// New makes a Backend; it touches no table before Sync.
func New(opts Options) (*Backend, error) {
	settings, err := opts.Settings()
	if err != nil {
		return nil, err
	}
	return &Backend{
		opts: opts, tables: opts.Tables, pace: newPace(opts.Batch, opts.SendLimit), rules: NewRuleset(settings, opts.Layout), refusals: map[tracker.ServicePortName]error{},
	}, nil
}

// Update takes note of what the plan changed. A Service port that was refused gets another chance when it changes.
func (b *Backend) Update(delta plan.Delta) {
	b.rules.Update(delta)
	for _, port := range delta.Changed {
		delete(b.refusals, port.Name)
	}
	for _, name := range delta.Removed {
		delete(b.refusals, name)
	}
}

// Settings in force.
func (b *Backend) Settings() backend.Settings { return b.rules.Settings() }

// Dirty says whether a sync may have anything to write.
func (b *Backend) Dirty() bool { return b.rules.Dirty() }

// NeedsFull says why so many endpoints want everything written anew; empty: they do not.
func (b *Backend) NeedsFull(endpoints int) string {
	if b.rules.CrossesLarge(endpoints) {
		return "size"
	}
	return ""
}

// Stamp changes when a table may have changed.
func (b *Backend) Stamp() (backend.Stamp, error) { return b.tables.Stamp() }

// Others stays the same after a sync as before it, unless somebody else wrote meanwhile.
func (b *Backend) Others() (backend.Stamp, error) { return b.tables.Others(b.rules.Total()) }

// Drift compares the tables with what should be in them and describes the first difference; empty: none.
func (b *Backend) Drift(ctx context.Context) (string, error) {
	want := b.rules.Expected()
	if found, err := b.tables.Drift(ctx, want); found != "" || err != nil {
		return found, err
	}
	return b.loosened(want)
}

// Glance looks at chains that were not deleted because others referred to them, if there are any: who did may have
// stopped between the sync that left them and the reading of its stamp.
func (b *Backend) Glance() (string, error) {
	if len(b.rules.stuck) == 0 {
		return "", nil
	}
	return b.loosened(b.rules.Expected())
}

// Dispatch lists the cluster IPs in the order in which packets meet their rules, and the number of rules that a packet
// for none of them crosses.
func (b *Backend) Dispatch(ports []*plan.ServicePort) ([]backend.Frontend, int) {
	return b.rules.Dispatch(ports)
}

// Sync brings the tables to the plan. A partial one with nothing to write runs no tool.
func (b *Backend) Sync(ctx context.Context, req backend.Request) (backend.Result, error) {
	s := &syncing{Backend: b, req: req, result: backend.Result{Full: req.Full}}
	b.rules.begin()
	err := s.run(ctx)
	s.result.Installed, s.result.Sent = b.rules.Total(), b.rules.written
	s.result.Refused = b.refusals
	return s.result, err
}

// syncing is one sync.
type syncing struct {
	*Backend
	req    backend.Request
	result backend.Result
}

func (s *syncing) run(ctx context.Context) error {
	if s.req.Full {
		if err := s.prepareFull(ctx); err != nil {
			return err
		}
	}
	if !s.rules.Dirty() {
		return nil
	}
	return s.write(ctx)
}

// prepareFull reads again what a full sync may find changed, makes what is missing around the Service chains, and
// takes nothing of what is there for known.
func (s *syncing) prepareFull(ctx context.Context) error {
	start := s.opts.Clock.Now()
	if (s.noAccounting || s.noBPF) && start.Sub(s.doubted) >= doubtFor {
		s.noAccounting, s.noBPF = false, false
	}
	if err := s.applySettings(); err != nil {
		return err
	}
	s.rules.Reset()
	clear(s.refusals)
	s.result.Encode += s.opts.Clock.Since(start)

	existing, err := s.existing()
	if err != nil {
		return err
	}
	if s.req.Inherit && slices.ContainsFunc(existing[NAT], s.rules.leads) {
		if s.result.Inherited, err = inherit(s.tables); err != nil {
			return err
		}
	}
	start = s.opts.Clock.Now()
	err = s.tables.EnsureJumps(ctx)
	s.result.Jumps += s.opts.Clock.Since(start)
	if err != nil {
		return err
	}
	void := map[Table]bool{}
	for table, names := range existing {
		void[table] = !slices.ContainsFunc(names, s.rules.leads)
	}
	if existing, err = s.existing(); err != nil {
		return err
	}
	s.rules.Forget(existing, void)
	return nil
}

// existing are the chains of the tables.
func (s *syncing) existing() (map[Table][]string, error) {
	existing := map[Table][]string{}
	for _, table := range []Table{NAT, Filter} {
		var err error
		if existing[table], err = s.tables.Chains(table); err != nil {
			return nil, fmt.Errorf("chains of an earlier proxier: %w", err)
		}
	}
	return existing, nil
}

// applySettings renders everything again with the settings of the moment.
func (s *syncing) applySettings() error {
	settings, err := s.opts.Settings()
	if err != nil {
		return err
	}
	settings.Accounting = settings.Accounting && !s.noAccounting
	settings.BPF = settings.BPF && !s.noBPF
	s.rules.SetSettings(settings)
	s.rules.Rerender(s.req.Ports)
	return nil
}

// restore brings the tables to what is wanted.
func (s *syncing) restore(ctx context.Context) error {
	start := s.opts.Clock.Now()
	encoding := func() {
		s.result.Encode += s.opts.Clock.Since(start)
		start = s.opts.Clock.Now()
	}
	d := s.rules.difference(s.req.Ports, s.req.Endpoints)
	d.tables = s.tables
	stages := &stager{difference: d, apart: s.opts.Variant == Nft, pace: s.pace}
	stages.restore = func(p *Payload, live bool) error {
		encoding()
		err := s.handOver(ctx, d, p, live)
		start = s.opts.Clock.Now()
		return err
	}
	err := stages.run()
	encoding()
	if err != nil {
		s.rules.behind = true
	}
	if refusal(err) != nil {
		d.keep()
	}
	return err
}

// handOver restores one payload.
func (s *syncing) handOver(ctx context.Context, d *difference, p *Payload, live bool) error {
	run, err := s.tables.Restore(ctx, p)
	s.result.Runs = append(s.result.Runs, run)
	if err != nil {
		d.failed(p, live, err)
		return err
	}
	s.pace.wall = run.Wall
	d.took(p, live)
	return nil
}
