package fault

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"synclab/bench/lab/netns"
	"synclab/bench/pass"
	"synclab/bench/verify/invariants"
	"synclab/proxier/kernel/attr"
	"synclab/scenarios"
)

func init() {
	register(Kind{
		Name: scenarios.FaultConntrackFull, inject: (*Faults).fillConntrack, lasts: forTime, shows: changesVisible,
		LosesFlows: "the kernel drops what it cannot track", FillsConntrack: true,
	})
}

// The connections that fill a table are UDP flows of the range for benchmarks (RFC 2544), which nothing else uses. A
// mark identifies them, so that one request deletes them.
const (
	fillMark   = 0x5ca1ab1e
	refillMark = fillMark + 1 // of flows made later, in place of other flows that ended
	fillMarks  = 0xffffffff &^ (fillMark ^ refillMark)

	fillTimeout = 3600 // s
	// mostFill limits the flows, which need some 320 bytes of kernel memory each. If the machine's nf_conntrack_max is
	// larger, the table does not become full.
	mostFill = 1_000_000
	// fillBatch is the number of flows per system call: their answers must fit into a socket buffer.
	fillBatch = 64
	// refill is the interval in which free places are filled again.
	refill = 20 * time.Millisecond
)

// fillConntrack fills the namespace's conntrack table and keeps it full. The kernel compares the number of entries in a
// namespace with one limit for the whole machine. New flows are then dropped. Existing flows stay.
func (r *Faults) fillConntrack(ctx context.Context, d *activeFault) error {
	if err := netns.Guard(); err != nil {
		return err
	}
	filler, err := newFiller()
	if err != nil {
		return err
	}
	d.stops = append(d.stops, filler.clear)
	if d.Flows > 0 {
		filler.most = d.Flows
	}
	d.began = r.Clock.Now() // flows may fail before the table is full
	full, err := filler.fill(ctx)
	if err != nil {
		return err
	}
	r.start(d)
	filler.mark = refillMark
	first, err := filler.count(fillMark)
	if err != nil {
		return err
	}
	switch {
	case full:
		r.note(d, "the conntrack table is full: the lab made %d entries", filler.made)
	case d.Flows > 0:
		r.note(d, "the lab made %d conntrack entries", filler.made)
	default:
		r.note(d, "the conntrack table is not full: the lab made %d entries, and the machine's nf_conntrack_max is larger", filler.made)
	}
	filling, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		var err error
		for err == nil && pass.Wait(filling, refill) == nil {
			_, err = filler.fill(filling)
		}
		done <- err
	}()
	d.stops = append(d.stops, func() error {
		stop()
		if err := <-done; err != nil {
			return err
		}
		return r.stillThere(filler, first)
	})
	return nil
}

// stillThere checks I9 on the first flows: they belong to no Service, do not expire, and so must still exist.
func (r *Faults) stillThere(filler *filler, first int) error {
	left, err := filler.count(fillMark)
	if err != nil {
		return err
	}
	result := invariants.Result{Invariant: "I9", Checked: first}
	if left < first {
		result.Findings = []invariants.Finding{{
			Invariant: "I9", Text: fmt.Sprintf("%d of %d UDP flows that belong to no Service were deleted", first-left, first),
		}}
	}
	r.Report([]invariants.Result{result})
	return nil
}

// filler makes conntrack entries over ctnetlink.
type filler struct {
	fd   int
	next uint32 // number of the next flow
	made int
	mark uint32
	most int // limit of made
	to   []translated
}

// translated is a destination of flows, and the endpoint that answers them.
type translated struct{ to, by netip.AddrPort }

// nowhere is a destination that no Service has.
var nowhere = netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 19, 0, 1}), 9)

func newFiller() (*filler, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("connections: netlink: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("connections: netlink: %w", err)
	}
	return &filler{fd: fd, mark: fillMark, most: mostFill, to: []translated{{nowhere, nowhere}}}, nil
}

// fill makes entries until the kernel has no room for another (ENOMEM), or the limit is reached.
func (c *filler) fill(ctx context.Context) (full bool, err error) {
	var batch []byte
	for c.made < c.most && ctx.Err() == nil {
		batch = batch[:0]
		for range fillBatch - 1 {
			batch = c.appendFlow(batch, 0)
		}
		// The kernel answers each request that fails. NLM_F_ACK makes it answer the last one also on success.
		batch = c.appendFlow(batch, unix.NLM_F_ACK)
		if err := unix.Sendto(c.fd, batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return false, fmt.Errorf("connections: %w", err)
		}
		failed, err := c.answers(c.next)
		c.made += fillBatch - failed
		switch {
		case errors.Is(err, unix.ENOMEM):
			return true, nil
		case err != nil && !errors.Is(err, unix.EEXIST): // the entry exists since the numbers wrapped
			return false, fmt.Errorf("connections: %w", err)
		}
	}
	return false, nil
}

// receive reads messages until each has had its last one.
func (c *filler) receive(each func(kind uint16, number uint32, body []byte) (last bool)) error {
	buf := make([]byte, 1<<16)
	for {
		n, err := unix.Read(c.fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		for rest := buf[:n]; len(rest) >= unix.NLMSG_HDRLEN+4; {
			length := int(binary.NativeEndian.Uint32(rest))
			if length < unix.NLMSG_HDRLEN+4 || length > len(rest) {
				break
			}
			if each(binary.NativeEndian.Uint16(rest[4:]), binary.NativeEndian.Uint32(rest[8:]), rest[unix.NLMSG_HDRLEN:length]) {
				return nil
			}
			rest = rest[min(len(rest), (length+3)&^3):]
		}
	}
}

// answers reads up to the answer to the last flow. It returns the number of failures and the first error.
func (c *filler) answers(last uint32) (failed int, err error) {
	readErr := c.receive(func(_ uint16, number uint32, body []byte) bool {
		if code := -int32(binary.NativeEndian.Uint32(body)); code != 0 {
			failed++
			if err == nil {
				err = unix.Errno(code)
			}
		}
		return number == last
	})
	switch {
	case errors.Is(readErr, unix.ENOBUFS): // too many errors at once
		return failed + 1, unix.ENOMEM
	case readErr != nil:
		return failed, readErr
	}
	return failed, err
}

// clear deletes all entries of the filler by their mark, in one request.
func (c *filler) clear() error {
	defer unix.Close(c.fd)
	c.next++
	var b []byte
	b, end := c.begin(b, unix.NFNL_SUBSYS_CTNETLINK<<8|ctDelete, unix.NLM_F_REQUEST|unix.NLM_F_ACK, unix.AF_INET)
	b = attr.AppendUint32(b, ctaMark, fillMark&fillMarks)
	b = attr.AppendUint32(b, ctaMarkMask, fillMarks)
	b = end(b)
	if err := unix.Sendto(c.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("delete connections: %w", err)
	}
	if _, err := c.answers(c.next); err != nil {
		return fmt.Errorf("delete connections: %w", err)
	}
	return nil
}

// count returns the number of entries with a mark.
func (c *filler) count(mark uint32) (n int, err error) {
	c.next++
	b, end := c.begin(nil, unix.NFNL_SUBSYS_CTNETLINK<<8|ctGet, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, unix.AF_UNSPEC)
	b = attr.AppendUint32(b, ctaMark, mark)
	b = attr.AppendUint32(b, ctaMarkMask, 0xffffffff)
	if err := unix.Sendto(c.fd, end(b), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, fmt.Errorf("count connections: %w", err)
	}
	var refused error
	err = c.receive(func(kind uint16, number uint32, body []byte) bool {
		switch {
		case number != c.next: // the rest of an earlier answer
			return false
		case kind == unix.NLMSG_ERROR:
			refused = unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
		case kind != unix.NLMSG_DONE:
			n++
			return false
		}
		return true
	})
	if err = cmp.Or(err, refused); err != nil {
		return 0, fmt.Errorf("count connections: %w", err)
	}
	return n, nil
}

// From include/uapi/linux/netfilter/nfnetlink_conntrack.h.
const (
	ctNew, ctGet, ctDelete = 0, 1, 2

	ctaTupleOrig, ctaTupleReply, ctaStatus, ctaTimeout, ctaMark, ctaMarkMask = 1, 2, 3, 7, 8, 21
)

// begin starts a message; end fills in its length.
func (c *filler) begin(b []byte, kind, flags uint16, protocol byte) (_ []byte, end func([]byte) []byte) {
	at := len(b)
	b = append(b, make([]byte, unix.NLMSG_HDRLEN)...)
	binary.NativeEndian.PutUint16(b[at+4:], kind)
	binary.NativeEndian.PutUint16(b[at+6:], flags)
	binary.NativeEndian.PutUint32(b[at+8:], c.next)
	b = append(b, protocol, unix.NFNETLINK_V0, 0, 0)
	return b, func(b []byte) []byte {
		binary.NativeEndian.PutUint32(b[at:], uint32(len(b)-at))
		return b
	}
}

// appendFlow appends a request for one more entry, from 198.18.x.y or 2001:db8:18::x.y to the next destination.
func (c *filler) appendFlow(b []byte, flags uint16) []byte {
	c.next++
	at := c.to[int(c.next)%len(c.to)]
	from, protocol := netip.AddrFrom4([4]byte{198, 18, byte(c.next >> 23), byte(c.next >> 15)}), byte(unix.AF_INET)
	if at.to.Addr().Is6() {
		from, protocol = netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, 0x18, 14: byte(c.next >> 23), 15: byte(c.next >> 15)}), unix.AF_INET6
	}
	src := netip.AddrPortFrom(from, uint16(c.next&0x7fff)+1024)
	b, end := c.begin(b, unix.NFNL_SUBSYS_CTNETLINK<<8|ctNew, unix.NLM_F_REQUEST|unix.NLM_F_CREATE|unix.NLM_F_EXCL|flags, protocol)
	b = invariants.AppendTuple(b, ctaTupleOrig, src, at.to)
	b = invariants.AppendTuple(b, ctaTupleReply, at.by, src)
	b = attr.AppendUint32(b, ctaStatus, invariants.Assured)
	b = attr.AppendUint32(b, ctaTimeout, fillTimeout)
	b = attr.AppendUint32(b, ctaMark, c.mark)
	return end(b)
}
