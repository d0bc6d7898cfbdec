package fault

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"synclab/bench/lab/netns"
	"synclab/bench/verify/invariants"
)

// A deleted flow of the lab is detected, even if another flow has replaced it.
func TestFillerMissesWhatIsDeleted(t *testing.T) {
	netns.Fresh(t)
	filler, err := newFiller()
	if err != nil {
		t.Fatal(err)
	}
	filler.most = 1000
	if _, err := filler.fill(t.Context()); err != nil {
		t.Skip(err) // conntrack entries cannot be made here
	}
	count := func(mark uint32, want int) {
		t.Helper()
		n, err := filler.count(mark)
		if err != nil {
			t.Fatal(err)
		}
		if n != want {
			t.Errorf("%d connections of mark %#x, want %d", n, mark, want)
		}
	}
	first := filler.made
	if first < 1000 {
		t.Fatalf("%d of 1,000 entries were made", first)
	}
	count(fillMark, first)
	count(refillMark, 0)

	filler.mark = refillMark
	filler.most = first + 1
	if _, err := filler.fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	filler.next++
	b, end := filler.begin(nil, unix.NFNL_SUBSYS_CTNETLINK<<8|ctDelete, unix.NLM_F_REQUEST|unix.NLM_F_ACK, unix.AF_INET)
	b = invariants.AppendTuple(b, ctaTupleOrig, netip.MustParseAddrPort("198.18.0.0:1025"), nowhere)
	if err := unix.Sendto(filler.fd, end(b), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		t.Fatal(err)
	}
	if _, err := filler.answers(filler.next); err != nil {
		t.Fatal(err)
	}
	count(fillMark, first-1)
	count(refillMark, filler.made-first)
	if err := filler.clear(); err != nil {
		t.Fatal(err)
	}
}
