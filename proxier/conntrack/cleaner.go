package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// Table is a conntrack table: the kernel's, or one in memory.
type Table interface {
	// DeleteUDP passes every UDP flow of the family to stale and deletes those for which stale returns true. After an
	// error some flows may not have been visited or deleted; Pass counts those that were.
	DeleteUDP(ctx context.Context, family corev1.IPFamily, stale func(Flow) bool) (Pass, error)
}

// Pass counts the flows of one cleanup.
type Pass struct {
	Visited int // flows passed to stale
	Deleted int // flows deleted
}

// Options of a Cleaner.
type Options struct {
	// Table is the table to clean.
	Table Table
	// Family of the flows to clean.
	Family corev1.IPFamily
	// Local returns a function that reports which addresses of the node take NodePorts, see NodeLocal. The Cleaner
	// calls it before each pass while there are NodePorts, because addresses change. Nil: no flow is matched with a
	// NodePort.
	Local func() (func(netip.Addr) bool, error)
}

// Cleaner records where the rules send UDP flows now, and where they sent them since the last successful Clean. One
// sync loop owns it. It is not safe for concurrent use.
type Cleaner struct {
	opts Options

	serving map[Frontend]Endpoints
	// former holds the previous endpoints of frontends that changed since the last successful Clean or were recalled.
	former map[Frontend]Endpoints
	// pending: the next Clean reads the table. fresh: it has more work than the last failed one had.
	pending, fresh bool
	// nodePorts is the number of NodePorts in serving.
	nodePorts int
}

// NewCleaner returns a cleaner of opts.Table. The first Clean always reads the table, because entries of an earlier
// proxier may remain.
func NewCleaner(opts Options) (*Cleaner, error) {
	switch {
	case opts.Table == nil:
		return nil, errors.New("conntrack cleaner: no table")
	case opts.Family != corev1.IPv4Protocol && opts.Family != corev1.IPv6Protocol:
		return nil, fmt.Errorf("conntrack cleaner: family %q is neither %q nor %q", opts.Family, corev1.IPv4Protocol, corev1.IPv6Protocol)
	}
	return &Cleaner{
		opts:    opts,
		serving: map[Frontend]Endpoints{},
		former:  map[Frontend]Endpoints{},
		pending: true,
		fresh:   true,
	}, nil
}

// Set declares that flows to f may go to serving. It makes a Clean necessary if f is new, had no endpoint, or lost one.
// Added endpoints leave every flow valid.
func (c *Cleaner) Set(f Frontend, serving Endpoints) {
	old, known := c.serving[f]
	c.serving[f] = serving
	if !known && f.IsNodePort() {
		c.nodePorts++
	}
	if known && len(old) > 0 && serving.containsAll(old) {
		return
	}
	if known && len(old) == 0 && len(serving) == 0 {
		return
	}
	c.Force()
	c.remember(f, old)
}

// Remove declares that f is no longer a frontend.
func (c *Cleaner) Remove(f Frontend) {
	old, known := c.serving[f]
	if !known {
		return
	}
	delete(c.serving, f)
	if f.IsNodePort() {
		c.nodePorts--
	}
	c.Force()
	c.remember(f, old)
}

// Recall declares that rules may have sent flows from f to endpoints that Set did not receive: rules of an earlier
// proxier, or of a failed sync. Until the next successful Clean, they count as former endpoints of f. If f is a
// frontend, its current endpoints decide instead.
func (c *Cleaner) Recall(f Frontend, led Endpoints) {
	if len(led) == 0 {
		return
	}
	c.Force()
	c.remember(f, led)
}

// Force makes the next Clean read the table even if nothing changed.
func (c *Cleaner) Force() { c.pending, c.fresh = true, true }

// Pending reports whether the next Clean reads the table.
func (c *Cleaner) Pending() bool { return c.pending }

// Fresh reports whether the next Clean has work that no Clean has tried yet.
func (c *Cleaner) Fresh() bool { return c.fresh }

// Clean deletes the stale flows, if anything changed since its last success. Call it after the rules are in the kernel:
// if an entry is deleted earlier, the old rules make it again. After an error everything stays pending for the next
// call.
func (c *Cleaner) Clean(ctx context.Context) (Pass, error) {
	if !c.pending {
		return Pass{}, nil
	}
	c.fresh = false
	want := Expectation{Serving: c.serving, Gone: c.former}
	local, localErr := c.local()
	if localErr != nil {
		// The other frontends are cleaned without the node's addresses.
		local, localErr = nil, fmt.Errorf("read the addresses for NodePorts: %w", localErr)
	}
	want.Local = local

	pass, err := c.opts.Table.DeleteUDP(ctx, c.opts.Family, want.Stale)
	if err := errors.Join(localErr, err); err != nil {
		return pass, fmt.Errorf("clean stale %s UDP conntrack entries: %w", c.opts.Family, err)
	}
	c.pending = false
	clear(c.former)
	return pass, nil
}

// local reads the node's addresses if a NodePort needs them.
func (c *Cleaner) local() (func(netip.Addr) bool, error) {
	needed := c.nodePorts > 0
	for f := range c.former { // few: only changes since the last success
		needed = needed || f.IsNodePort()
	}
	if !needed || c.opts.Local == nil {
		return nil, nil
	}
	return c.opts.Local()
}

// remember adds the previous endpoints of f to former.
func (c *Cleaner) remember(f Frontend, old Endpoints) {
	if len(old) == 0 {
		return
	}
	known, ok := c.former[f]
	if !ok {
		c.former[f] = old
		return
	}
	if !known.containsAll(old) {
		c.former[f] = NewEndpoints(append(known[:len(known):len(known)], old...)...)
	}
}
