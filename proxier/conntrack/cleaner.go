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
	// DeleteUDP shows every UDP flow of the family to stale and deletes those
	// for which it returns true. On an error some flows may not have been seen
	// or deleted; what Pass counts did happen.
	DeleteUDP(ctx context.Context, family corev1.IPFamily, stale func(Flow) bool) (Pass, error)
}

// Pass counts what one cleaning did.
type Pass struct {
	Visited int // flows looked at
	Deleted int // flows deleted
}

// Options of a Cleaner.
type Options struct {
	// Table to clean.
	Table Table
	// Family of the flows to look at.
	Family corev1.IPFamily
	// Local tells which addresses of the node take nodePorts, see NodeLocal. It
	// is asked before each pass while there are nodePorts, since addresses come
	// and go. Nil: nodePorts judge no flow.
	Local func() (func(netip.Addr) bool, error)
}

// Cleaner remembers what the rules promise UDP flows and what they promised
// since the last successful Clean. It belongs to one sync loop and is not safe
// for use by several goroutines at once.
type Cleaner struct {
	opts Options

	serving map[Frontend]Endpoints
	// former holds, for frontends that changed since the last successful
	// Clean or were recalled, all endpoints they led to meanwhile.
	former map[Frontend]Endpoints
	// pending: the next Clean looks at the table. fresh: it has more to look for than the last one that failed had.
	pending, fresh bool
	// nodePorts is how many of serving are nodePorts.
	nodePorts int
}

// NewCleaner returns a cleaner of opts.Table. The first Clean always looks at
// the table: entries may be left from an earlier proxier.
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

// Set says that flows to f may go to serving. It makes a Clean necessary when f
// is new, had no endpoint, or lost one; endpoints that were only added leave
// every flow where it may be.
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

// Remove says that f is no frontend any more.
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

// Recall says that rules may have led flows from f to endpoints that Set was
// not told of: those of an earlier proxier, or of a sync that failed. Until the
// next successful Clean that counts as what f led to; when f is a frontend, then
// what it leads to now decides.
func (c *Cleaner) Recall(f Frontend, led Endpoints) {
	if len(led) == 0 {
		return
	}
	c.Force()
	c.remember(f, led)
}

// Force makes the next Clean look at the table whether or not anything changed.
func (c *Cleaner) Force() { c.pending, c.fresh = true, true }

// Pending reports whether the next Clean looks at the table.
func (c *Cleaner) Pending() bool { return c.pending }

// Fresh reports whether the next Clean has something to look for that no Clean has looked for yet.
func (c *Cleaner) Fresh() bool { return c.fresh }

// Clean deletes the stale flows, if something changed since the last success.
// Call it when the rules are in the kernel, not before: an entry deleted
// earlier would be made anew by the old rules. After an error everything stays
// pending for the next call.
func (c *Cleaner) Clean(ctx context.Context) (Pass, error) {
	if !c.pending {
		return Pass{}, nil
	}
	c.fresh = false
	want := Expectation{Serving: c.serving, Gone: c.former}
	local, localErr := c.local()
	if localErr != nil {
		// The other frontends need not wait for the node's addresses.
		local, localErr = nil, fmt.Errorf("addresses for nodePorts: %w", localErr)
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

// local asks for the node's addresses if any nodePort needs them.
func (c *Cleaner) local() (func(netip.Addr) bool, error) {
	needed := c.nodePorts > 0
	for f := range c.former { // few: what changed since the last success
		needed = needed || f.IsNodePort()
	}
	if !needed || c.opts.Local == nil {
		return nil, nil
	}
	return c.opts.Local()
}

// remember adds what f led to until now.
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
