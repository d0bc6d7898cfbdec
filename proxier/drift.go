package proxier

import (
	"context"
	"slices"

	"synclab/proxier/backend"
	"synclab/proxier/kernel"
)

// deepEvery is how many checks in a row may trust an unchanged stamp: the legacy variant's is made of sizes only, and what
// somebody else replaced during a sync, rule for rule, would else never show.
const deepEvery = 10

// driftTries bounds how often one check begins again. Syncs may come in between: reading 110,000 chains takes 1.4 s.
const driftTries = 10

// watchDrift compares the tables with what should be in them, once every sync period, until ctx ends. kube-proxy looks
// at one empty chain in mangle, and so never notices a flushed nat table (k/k#129128).
func (e *engine) watchDrift(ctx context.Context) {
	ticker := e.clock.NewTicker(e.opts.Config.IPTables.SyncPeriod.Duration)
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

// check asks for a full sync when the tables are not, or may not be, as they should.
func (e *engine) check(ctx context.Context) {
	if e.lagging() {
		return // everything is going to be written
	}
	e.checkDrift(ctx)
}

// lagging asks for a full sync when what is wanted is known not to be what is installed: Service ports were refused,
// which may be otherwise by now (refusals), or the addresses that take NodePorts are others, of which no event tells.
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
		e.log("check of addresses", "error", err)
		return false
	}
	// nil is all addresses, none is none.
	inForce := e.backend.Settings().NodePortAddresses
	if (addrs == nil) == (inForce == nil) && slices.Equal(addrs, inForce) {
		return false
	}
	e.log("addresses for NodePorts changed", "from", inForce, "to", addrs)
	e.demandFull("addresses")
	return true
}

// balancing is a Backend that can tell what it did not write itself.
type balancing interface {
	// Others stays the same after a sync as before it, unless somebody else wrote meanwhile.
	Others() (backend.Stamp, error)
}

// watchOthers has the next check read the tables if somebody else wrote since the last sync, even while this one was
// under way: what its stamp was read after, no stamp tells.
func (e *engine) watchOthers() {
	b, ok := e.backend.(balancing)
	if !ok {
		return
	}
	others, err := b.Others()
	if err != nil {
		e.others = nil
		return
	}
	if e.others != nil && others != *e.others {
		e.suspect = true
	}
	e.others = &others
}

// glancing is a Backend whose Stamp leaves something out that is too much for each sync, and little for each check.
type glancing interface {
	// Glance describes the first difference that it finds; empty: none.
	Glance() (string, error)
}

// checkDrift asks for a full sync when somebody meddled. A check that fails says nothing: a lock that is held is not a
// table that was flushed (k/k#83402).
func (e *engine) checkDrift(ctx context.Context) {
	for range driftTries {
		if !e.compare(ctx) {
			return
		}
	}
}

// compare is one try of a check, and says whether another one may tell more: somebody else changed tables meanwhile.
func (e *engine) compare(ctx context.Context) (again bool) {
	e.syncing.Lock() // a sync must not change the tables between the question and the comparison
	defer e.syncing.Unlock()
	if e.lastFull.IsZero() || e.backend.Dirty() {
		return false // the first sync, or the retry of a failed one, has to come first
	}
	stamp, err := e.backend.Stamp()
	if err != nil {
		e.log("drift check", "error", err)
		return false
	}
	e.checks++
	var found string
	if stamp == e.stamp && !e.suspect && e.checks%deepEvery != 0 {
		b, ok := e.backend.(glancing)
		if !ok {
			return false
		}
		found, err = b.Glance()
	} else {
		found, err = e.backend.Drift(ctx)
	}
	switch {
	case kernel.Changed(err):
		e.log("drift check", "error", err)
		e.suspect = true
		return true
	case err != nil:
		e.log("drift check", "error", err)
	case found != "":
		e.log("drift found", "what", found)
		e.after.drifted(e, found)
		e.demandFull("drift")
	default:
		e.stamp, e.suspect = stamp, false
	}
	return false
}
