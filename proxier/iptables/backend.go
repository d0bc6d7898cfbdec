package iptables

import (
	"context"
	"fmt"
	"slices"

	"synclab/proxier/backend"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// Options of a Backend.
type Options struct {
	backend.Options
	// Tables to write; see Host and Model.
	Tables Tables
	// Layout of the rules.
	Layout Layout
	// Variant of Tables. With Nft, a restore may create chains before another restore adds jumps to them.
	Variant Variant
	// Batch is the number of chain names, jump targets included, in one of several restores. 0: chosen by measured
	// cost.
	Batch int
	// SendLimit is how many bytes of netlink messages one restore may send; 0: no limit. See kernel.SendLimit.
	SendLimit int
}

// Backend keeps iptables tables in the state that a plan describes. Not safe for concurrent use.
type Backend struct {
	opts     Options
	rules    *Ruleset
	tables   Tables
	pace     *pace
	refusals map[tracker.ServicePortName]error
	nfacct   optionalMatch
	bpf      optionalMatch
}

// New creates a Backend. It writes no table before Sync.
func New(opts Options) (*Backend, error) {
	settings, err := opts.Settings()
	if err != nil {
		return nil, err
	}
	return &Backend{
		opts: opts, tables: opts.Tables, pace: newPace(opts.Batch, opts.SendLimit), rules: NewRuleset(settings, opts.Layout), refusals: map[tracker.ServicePortName]error{},
		nfacct: optionalMatch{name: "nfacct"}, bpf: optionalMatch{name: "bpf"},
	}, nil
}

// Update records the changes of the plan. A refused Service port is tried again when it changes.
func (b *Backend) Update(delta plan.Delta) {
	b.rules.Update(delta)
	for _, port := range delta.Changed {
		delete(b.refusals, port.Name)
	}
	for _, name := range delta.Removed {
		delete(b.refusals, name)
	}
}

// Settings returns the settings in force.
func (b *Backend) Settings() backend.Settings { return b.rules.Settings() }

// Dirty reports whether a sync may have anything to write.
func (b *Backend) Dirty() bool { return b.rules.Dirty() }

// NeedsFull returns why this number of endpoints requires a full sync; empty: it does not.
func (b *Backend) NeedsFull(endpoints int) string {
	if b.rules.CrossesLarge(endpoints) {
		return "size"
	}
	return ""
}

// Fingerprint returns a fingerprint that changes when a table may have changed.
func (b *Backend) Fingerprint() (backend.Fingerprint, error) { return b.tables.Fingerprint() }

// Others returns a fingerprint that external writes change and a sync does not.
func (b *Backend) Others() (backend.Fingerprint, error) { return b.tables.Others(b.rules.Total()) }

// Drift returns a comparison of the tables with the expected content.
func (b *Backend) Drift() backend.Comparison {
	if found, err := b.Glance(); found != "" || err != nil {
		return backend.Compared(found, err)
	}
	return b.tables.Drift(b.rules.Expected())
}

// Glance checks the chains that a sync could not delete because foreign rules refer to them. Such a rule may have been
// removed after that sync and before its fingerprint was read.
func (b *Backend) Glance() (string, error) {
	if len(b.rules.known[NAT].stuck)+len(b.rules.known[Filter].stuck) == 0 {
		return "", nil
	}
	return b.loosened(b.rules.Expected())
}

// Close has nothing to close: each sync runs tools.
func (b *Backend) Close() error { return nil }

// Dispatch lists the cluster IPs in the order in which packets meet their rules. It also returns the number of rules
// that a packet for no cluster IP crosses.
func (b *Backend) Dispatch(ports []*plan.ServicePort) ([]backend.Frontend, int) {
	return b.rules.Dispatch(ports)
}

// Sync brings the tables to the plan. A partial sync with nothing to write runs no tool.
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

// prepareFull reads the settings again, creates missing base chains and jumps, and marks all kernel content as unknown.
func (s *syncing) prepareFull(ctx context.Context) error {
	start := s.opts.Clock.Now()
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
	start = s.opts.Clock.Now()
	err = s.tables.EnsureJumps(ctx, existing)
	s.result.Jumps += s.opts.Clock.Since(start)
	if err != nil {
		return err
	}
	noJumps := map[Table]bool{}
	for table, names := range existing {
		noJumps[table] = !slices.ContainsFunc(names, s.rules.leads)
	}
	if existing, err = s.existing(); err != nil { // again: a tool of an earlier process may have ended meanwhile
		return err
	}
	s.rules.Forget(existing, noJumps)
	return nil
}

// existing returns the user-defined chains of nat and filter.
func (s *syncing) existing() (map[Table][]string, error) {
	existing := map[Table][]string{}
	for _, table := range []Table{NAT, Filter} {
		var err error
		if existing[table], err = s.tables.Chains(table); err != nil {
			return nil, fmt.Errorf("reading the installed chains: %w", err)
		}
	}
	return existing, nil
}

// applySettings renders all Service ports with the current settings.
func (s *syncing) applySettings() error {
	settings, err := s.opts.Settings()
	if err != nil {
		return err
	}
	now := s.opts.Clock.Now()
	settings.Accounting = settings.Accounting && !now.Before(s.nfacct.until)
	settings.BPF = settings.BPF && !now.Before(s.bpf.until)
	s.rules.Rerender(settings, s.req.Ports)
	return nil
}

// restore brings the tables to the desired state.
func (s *syncing) restore(ctx context.Context) error {
	start := s.opts.Clock.Now()
	encoding := func() {
		s.result.Encode += s.opts.Clock.Since(start)
		start = s.opts.Clock.Now()
	}
	d := s.rules.difference(s.req.Ports, s.req.Endpoints)
	d.tables = s.tables
	stages := &stager{difference: d, incremental: s.opts.Variant == Nft, pace: s.pace}
	stages.restore = func(p *Payload, live bool) error {
		encoding()
		err := s.handOver(ctx, d, p, live)
		start = s.opts.Clock.Now()
		return err
	}
	err := stages.run()
	encoding()
	if err != nil {
		s.rules.raise(behind)
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
