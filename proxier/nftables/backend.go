package nftables

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/backend"
	"synclab/proxier/kernel"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// Table is the name under which counts are reported, whichever of its two names the table has.
const Table backend.Table = "synclab"

// Options of a Backend.
type Options struct {
	backend.Options
	Family corev1.IPFamily
	// Model replaces the kernel, by family; nil: the kernel.
	Model func(corev1.IPFamily) *Model
}

// Backend keeps one table of nf_tables in the state that a plan describes, in the network namespace of the thread that
// first syncs. Not safe for concurrent use.
type Backend struct {
	opts     Options
	settings backend.Settings // in force

	socket *socket
	kernel *kernel.Nftables
	beside *kernel.Nftables // of comparisons, which may run beside a sync
	// rules and encoder are those of the table that packets meet; nil before the first full sync.
	rules   *Ruleset
	encoder *encoder
	handle  uint64 // of the table
	// generation of the kernel at the last Fingerprint. externalWrites counts how often Fingerprint found the table
	// changed.
	generation     uint32
	externalWrites uint64
	// foreign: another process committed, and the rules have not been compared since.
	foreign bool
	// unsure: a transaction failed, and the content of the table is unknown.
	unsure   bool
	refusals map[tracker.ServicePortName]error
	// pardoned Service ports were refused and have changed since.
	pardoned map[tracker.ServicePortName]*plan.ServicePort

	model *Model // in place of the kernel; nil: the kernel
	seen  uint64 // the model's count of external writes when it was last compared

	// fault, when set, may refuse a batch; for tests.
	fault func(batch []byte) error
}

// New creates a Backend. It writes no table before Sync.
func New(opts Options) (*Backend, error) {
	settings, err := opts.Settings()
	if err != nil {
		return nil, err
	}
	b := &Backend{
		opts: opts, settings: settings,
		refusals: map[tracker.ServicePortName]error{}, pardoned: map[tracker.ServicePortName]*plan.ServicePort{},
	}
	if opts.Model != nil {
		b.model = opts.Model(opts.Family)
	}
	return b, nil
}

// Update records the changes of the plan. A refused Service port is tried again when it changes.
func (b *Backend) Update(delta plan.Delta) {
	for _, name := range delta.Removed {
		delete(b.refusals, name)
		delete(b.pardoned, name)
	}
	for _, port := range delta.Changed {
		_, refused := b.refusals[port.Name]
		if _, pardoned := b.pardoned[port.Name]; refused || pardoned {
			b.pardoned[port.Name] = port
		}
		delete(b.refusals, port.Name)
	}
	if b.rules != nil {
		b.rules.Update(delta)
	}
}

// Settings returns the settings in force.
func (b *Backend) Settings() backend.Settings { return b.settings }

// Dirty reports whether a sync may have anything to write.
func (b *Backend) Dirty() bool { return b.rules == nil || b.unsure || b.rules.Dirty() }

// NeedsFull returns why a partial sync is not possible; empty: it is.
func (b *Backend) NeedsFull(int) string {
	switch {
	case b.rules == nil:
		return "start"
	case b.unsure:
		return "failure"
	}
	return ""
}

// Dispatch lists the cluster IPs that have endpoints, in the order of the plan. It also returns the number of rules
// that a packet for none of them crosses: those of one chain.
func (b *Backend) Dispatch(ports []*plan.ServicePort) (frontends []backend.Frontend, rules int) {
	for _, port := range ports {
		if port.HasInternalEndpoints() {
			frontends = append(frontends, backend.Frontend{
				Position: len(frontends) + 1, Protocol: port.Name.Protocol, Addr: addrPort(port),
			})
		}
	}
	return frontends, len(newRules(b.settings).fixed(baseChains[0].name))
}

// Sync brings the table to the plan.
func (b *Backend) Sync(ctx context.Context, req backend.Request) (result backend.Result, err error) {
	if err := b.open(); err != nil {
		return backend.Result{Full: req.Full}, err
	}
	start := b.opts.Clock.Now()
	s := &syncing{Backend: b, ctx: ctx, req: req, result: backend.Result{Full: req.Full}}
	err = s.run()
	result = s.result
	if b.socket != nil {
		result.Runs, b.socket.runs = b.socket.runs, nil
	}
	result.Encode = b.opts.Clock.Since(start)
	for _, run := range result.Runs {
		result.Encode -= run.Wall
	}
	result.Sent = map[backend.Table]backend.Count{Table: s.written}
	if b.rules != nil {
		result.Installed = map[backend.Table]backend.Count{Table: b.rules.Total()}
		for name, cause := range b.rules.refused {
			b.refusals[name] = cause
		}
	}
	result.Refused = b.refusals
	return result, err
}

// open opens the sockets in the network namespace of this thread.
func (b *Backend) open() (err error) {
	if b.model != nil {
		return nil
	}
	if b.socket == nil {
		if b.socket, err = openSocket(b.opts.Clock); err != nil {
			return err
		}
	}
	for _, k := range []**kernel.Nftables{&b.kernel, &b.beside} {
		if *k == nil {
			opened, err := kernel.OpenNftables()
			if err != nil {
				return err
			}
			*k = opened
		}
	}
	return nil
}

// Close closes the sockets. The table stays.
func (b *Backend) Close() error {
	if b.socket != nil {
		b.socket.close()
	}
	for _, k := range []*kernel.Nftables{b.kernel, b.beside} {
		if k != nil {
			k.Close()
		}
	}
	b.socket, b.kernel, b.beside = nil, nil, nil
	return nil
}

// syncing is one sync.
type syncing struct {
	*Backend
	ctx     context.Context
	req     backend.Request
	result  backend.Result
	written backend.Count
}

func (s *syncing) run() error {
	full := s.req.Full
	if reason := s.NeedsFull(s.req.Endpoints); reason != "" && !full {
		s.result.Full, s.result.Reason, full = true, reason, true
	}
	switch {
	case full && s.model != nil:
		return s.fullModel()
	case full:
		return s.full(nil)
	case !s.rules.Dirty():
		return nil
	case s.model != nil:
		return s.partialModel()
	}
	if err := s.examine(); err != nil {
		return err
	}
	dirty := s.rules.changed()
	s.encoder.reset(s.send)
	err := s.rules.Partial(s.encoder)
	s.written = s.encoder.written
	if err == nil {
		if err := s.forget(); err != nil {
			s.opts.Log("remembered clients keep their old affinity timeout", "error", err)
		}
		return nil
	}
	s.unsure = true
	if s.ctx.Err() != nil {
		return err
	}
	// An external write may have deleted objects of the transaction, or it was too long for the socket.
	s.opts.Log("transaction failed, starting a full sync", "error", err)
	s.result.Full, s.result.Reason = true, "failure"
	if !suspicious(err) {
		dirty = nil
	}
	return s.full(dirty)
}

// send sends a batch, unless the sync has to end.
func (s *syncing) send(batch []byte, first, last uint32) error {
	if s.ctx.Err() != nil {
		return fmt.Errorf("netlink: %w", context.Cause(s.ctx))
	}
	return s.handOver(batch, first, last)
}

func (s *syncing) handOver(batch []byte, first, last uint32) (err error) {
	if s.fault != nil {
		err = s.fault(batch)
	}
	if err == nil {
		err = s.socket.send(batch, first, last)
	}
	if err != nil {
		return &TransactionError{Err: err}
	}
	return nil
}

// TransactionError is a transaction that failed, for whatever reason.
type TransactionError struct {
	Err error
	// Cleanup: it was to delete a table that another one has replaced.
	Cleanup bool
}

// Error returns the text of the cause.
func (e *TransactionError) Error() string { return e.Err.Error() }

// Unwrap returns the cause, a RefusedError for example.
func (e *TransactionError) Unwrap() error { return e.Err }

// full writes everything into a new table, which then takes over. Before that, it finds out whether the kernel refuses
// one of the suspects, or still refuses a Service port that it refused before.
func (s *syncing) full(suspects []*plan.ServicePort) error {
	settings, err := s.opts.Settings()
	if err != nil {
		return err
	}
	suspects = s.withRefused(suspects)
	clear(s.refusals)
	clear(s.pardoned)
	if err := s.examineAlone(settings, suspects); err != nil {
		return err
	}
	err = s.replace(settings, s.accepted())
	if suspicious(err) {
		_, others, failed := s.tables()
		if failed != nil {
			return failed
		}
		if err = s.isolate(settings, s.accepted(), err, len(others) == 0); err == nil {
			err = s.replace(settings, s.accepted())
		}
	}
	return err
}

// replace loads a new table, which then takes over. When loading fails, nothing has changed.
func (s *syncing) replace(settings backend.Settings, ports []*plan.ServicePort) error {
	target, others, err := s.tables()
	if err != nil {
		return err
	}
	rules, enc, err := s.load(target, NewRuleset(settings), ports)
	if err != nil {
		return err
	}
	if err := s.inherit(rules, enc, others); err != nil {
		s.opts.Log("remembered clients were not copied to the new table", "error", err)
	}
	if err := rules.Activate(enc); err != nil {
		s.unsure = true
		return err
	}
	s.written = enc.written
	s.rules, s.encoder, s.settings, s.unsure = rules, enc, settings, false
	for _, name := range others {
		if err := s.remove(name); err != nil {
			s.unsure = true // the old table still takes packets that the new one leaves
			return &TransactionError{Err: fmt.Errorf("cannot delete the replaced table %s: %w", name, err), Cleanup: true}
		}
	}
	s.handle, _, err = s.kernel.Table(s.opts.Family, target)
	return err
}

// tables returns the name to load under, and the tables to delete once that works. A process that ended between two
// transactions leaves two tables that packets meet, the newer one first. Then the load replaces the older one.
func (s *syncing) tables() (target string, others []string, err error) {
	active, err := (&Reader{s.kernel}).Table(s.opts.Family)
	if err != nil {
		return "", nil, err
	}
	for _, name := range tableNames {
		_, there, err := s.kernel.Table(s.opts.Family, name)
		if err != nil {
			return "", nil, err
		}
		if name == active || there && target != "" {
			others = append(others, name)
			continue
		}
		if target == "" {
			target = name
		}
		if there {
			if err := s.remove(name); err != nil {
				return "", nil, err
			}
		}
	}
	return target, others, nil
}

// remove deletes a table, if it exists, even when the sync has to end: that is one short message.
func (s *syncing) remove(name string) error {
	e := newEncoder(s.opts.Family, name, s.handOver)
	e.deleteTable()
	if err := e.commit(); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// load fills a new table. When that fails, it deletes the table.
func (s *syncing) load(target string, rules *Ruleset, ports []*plan.ServicePort) (*Ruleset, *encoder, error) {
	e := newEncoder(s.opts.Family, target, s.send)
	e.limit = s.socket.split()
	err := rules.Load(e, ports)
	if err != nil {
		return nil, nil, errors.Join(err, s.remove(target))
	}
	e.limit = 0
	return rules, e, nil
}
