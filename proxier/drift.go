package proxier

import (
	"context"
	"errors"
	"slices"

	"synclab/proxier/kernel"
)

// deepEvery: every tenth drift check reads the tables even if the fingerprint is unchanged. The legacy variant's
// fingerprint contains only sizes. It cannot show that another process replaced rules one for one during a sync.
const deepEvery = 10

// driftTries bounds how often one check starts again. Syncs may run while it reads, but for the last try: reading 110,000
// chains takes 1.4 s.
const driftTries = 4

// errSynced: a sync wrote the tables while a check read them.
var errSynced = errors.New("a sync ran meanwhile")

// watchDrift compares the tables with the desired rules once every sync period, until ctx ends. kube-proxy checks only
// one empty chain in mangle, and so never notices a flushed nat table (k/k#129128). See docs/design/drift-check.md.
func (e *engine) watchDrift(ctx context.Context) {
	ticker := e.clock.NewTicker(e.opts.settings.SyncPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			e.check(ctx)
		}
	}
}

// check requests a full sync when the tables differ, or may differ, from the desired rules.
func (e *engine) check(ctx context.Context) {
	if e.lagging() {
		return // the full sync writes everything
	}
	e.checkDrift(ctx)
}

// lagging requests a full sync when the installed rules are known to be out of date. Either Service ports were refused
// and it is time to retry (refusals), or the addresses that take NodePorts changed. No event reports an address change.
func (e *engine) lagging() bool {
	e.syncing.Lock()
	defer e.syncing.Unlock()
	if e.lastFull.IsZero() {
		return false
	}
	if e.refused.retry(e.clock.Now()) {
		e.demandFull("refused")
		return true
	}
	addrs, err := e.nodePortAddresses()
	if err != nil {
		e.log("drift check: cannot read the node's addresses", "error", err)
		return false
	}
	// nil means all addresses; an empty list means none.
	inForce := e.backend.Settings().NodePortAddresses
	if (addrs == nil) == (inForce == nil) && slices.Equal(addrs, inForce) {
		return false
	}
	e.log("addresses for NodePorts changed", "from", inForce, "to", addrs)
	e.demandFull("addresses")
	return true
}

// watchOthers makes the next check read the tables if another process wrote since the last sync. That includes writes
// during this sync: the new fingerprint was read after them and does not show them.
func (e *engine) watchOthers() {
	others, err := e.backend.Others()
	if err != nil {
		e.others = nil
		return
	}
	if e.others != nil && others != *e.others {
		e.suspect = true
	}
	e.others = &others
}

// checkDrift requests a full sync on external writes. A check that fails proves nothing: a held lock is not a flushed
// table (k/k#83402).
func (e *engine) checkDrift(ctx context.Context) {
	for try := range driftTries {
		if !e.compare(ctx, try == driftTries-1) {
			return
		}
	}
}

// compare is one attempt of a check. It reports whether another attempt may succeed, because a table changed meanwhile.
// alone: no sync may run meanwhile.
func (e *engine) compare(ctx context.Context, alone bool) (again bool) {
	e.syncing.Lock()
	defer e.syncing.Unlock()
	if e.lastFull.IsZero() || e.backend.Dirty() {
		return false // the first sync, or the retry of a failed one, must run first
	}
	fingerprint, err := e.backend.Fingerprint()
	if err != nil {
		e.log("drift check: cannot read the fingerprint of the tables", "error", err)
		return false
	}
	e.checks++
	var found string
	if fingerprint == e.fingerprint && !e.suspect && e.checks%deepEvery != 0 {
		found, err = e.backend.Glance()
	} else {
		found, err = e.drift(ctx, alone)
	}
	switch {
	case kernel.Changed(err), errors.Is(err, errSynced):
		e.log("drift check: the tables changed while they were read", "error", err)
		e.suspect = true
		return true
	case err != nil:
		e.log("drift check: cannot compare the tables", "error", err)
	case found != "":
		e.log("drift found", "what", found)
		e.postSync.health.Drifted(e.family, found)
		e.demandFull("drift")
	default:
		e.fingerprint, e.suspect = fingerprint, false
	}
	return false
}

// drift compares the tables with the desired rules as of now. Unless it has to be alone, it lets syncs run, and errs if
// one did. The caller holds syncing, and holds it again afterwards.
func (e *engine) drift(ctx context.Context, alone bool) (string, error) {
	compare, seq := e.backend.Drift(), e.seq
	if alone {
		return compare(ctx)
	}
	e.syncing.Unlock()
	found, err := compare(ctx)
	e.syncing.Lock()
	if e.seq != seq {
		return "", errSynced
	}
	return found, err
}
