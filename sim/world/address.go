package world

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
)

// addressRange allocates the addresses of one range: first in order, then, when the range is used up, freed addresses,
// oldest first.
type addressRange struct {
	purpose string // for errors: "service", "pod"
	prefix  netip.Prefix
	next    uint64
	freed   []netip.Addr
	// taken are the addresses that a given cluster uses. All its ranges, which may overlap, share them. Nil: ranges of a
	// generated cluster do not overlap.
	taken map[netip.Addr]bool
	// kept are the addresses that the given objects had from the start: several Services may have the same pod, or one of
	// the host network, so that its removal from one frees nothing.
	kept map[netip.Addr]bool
}

// take returns the next free address.
func (p *addressRange) take() (netip.Addr, error) {
	for {
		addr, ok := nthAddress(p.prefix, p.next)
		if !ok {
			break
		}
		p.next++
		if p.mark(addr) {
			return addr, nil
		}
	}
	for len(p.freed) > 0 {
		addr := p.freed[0]
		p.freed = p.freed[1:]
		if p.mark(addr) {
			return addr, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%s range %s: all %d usable addresses are in use", p.purpose, p.prefix, p.next)
}

// mark reports whether an address is free, and takes it.
func (p *addressRange) mark(addr netip.Addr) bool {
	if p.taken[addr] {
		return false
	}
	if p.taken != nil {
		p.taken[addr] = true
	}
	return true
}

// give frees an address, if it belongs to the range.
func (p *addressRange) give(addr netip.Addr) bool {
	if !p.prefix.Contains(addr) {
		return false
	}
	if p.kept[addr] {
		return true
	}
	delete(p.taken, addr)
	p.freed = append(p.freed, addr)
	return true
}

// hostsPerBlock is the number of usable addresses in each aligned block of 256: all but .0 and .255, which look like
// network and broadcast addresses.
const hostsPerBlock = 254

// nthAddress returns the n-th usable address of a range, from 0.
func nthAddress(prefix netip.Prefix, n uint64) (netip.Addr, bool) {
	offset := n/hostsPerBlock*256 + n%hostsPerBlock + 1
	if offset >= rangeSize(prefix) {
		return netip.Addr{}, false
	}
	return offsetAddress(prefix.Masked().Addr(), offset), true
}

// rangeSize is the number of addresses in a range, at most 2^62.
func rangeSize(prefix netip.Prefix) uint64 {
	return 1 << min(prefix.Addr().BitLen()-prefix.Bits(), 62)
}

// offsetAddress adds an offset to the first address of a range. The result must lie in the range.
func offsetAddress(base netip.Addr, offset uint64) netip.Addr {
	if base.Is4() {
		b := base.As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(offset))
		return netip.AddrFrom4(b)
	}
	b := base.As16()
	low, carry := bits.Add64(binary.BigEndian.Uint64(b[8:]), offset, 0)
	binary.BigEndian.PutUint64(b[8:], low)
	binary.BigEndian.PutUint64(b[:8], binary.BigEndian.Uint64(b[:8])+carry)
	return netip.AddrFrom16(b)
}

// smallestNodeRange is the minimum size of a Node's part of the pod range. If parts would be smaller, pods are
// numbered straight through.
const smallestNodeRange = 16

// splitRange divides a pod range into an equal part for each of n Nodes. It returns nil when the parts would be too
// small.
func splitRange(prefix netip.Prefix, n int) []netip.Prefix {
	width := bits.Len(uint(n - 1)) // ⌈log2 n⌉
	size := rangeSize(prefix) >> width
	if size < smallestNodeRange {
		return nil
	}
	length := prefix.Bits() + width
	parts := make([]netip.Prefix, n)
	base := prefix.Masked().Addr()
	host := prefix.Addr().BitLen() - length // bits left to one Node
	for i := range parts {
		parts[i] = netip.PrefixFrom(shiftedAddress(base, uint64(i), host), length)
	}
	return parts
}

// shiftedAddress adds i<<shift to an address, over all its bits.
func shiftedAddress(base netip.Addr, i uint64, shift int) netip.Addr {
	if shift < 64 {
		return offsetAddress(base, i<<shift)
	}
	b := base.As16()
	binary.BigEndian.PutUint64(b[:8], binary.BigEndian.Uint64(b[:8])+i<<(shift-64))
	return netip.AddrFrom16(b)
}

// podRange allocates pod addresses of one family: from the Node's range where Nodes have ranges, else from the shared
// ranges, one after the other.
type podRange struct {
	shared  []*addressRange
	perNode map[string]*addressRange
	// given: the cluster was not generated. Steps may add more pods to its Nodes than their ranges have room for. These
	// pods have addresses of the shared ranges.
	given bool
}

// pools are the ranges of a Node's pods, in order.
func (r *podRange) pools(node string) []*addressRange {
	own := r.perNode[node]
	switch {
	case own == nil:
		return r.shared
	case !r.given:
		return []*addressRange{own}
	}
	return append([]*addressRange{own}, r.shared...)
}

func (r *podRange) take(node string) (addr netip.Addr, err error) {
	for _, pool := range r.pools(node) {
		if addr, err = pool.take(); err == nil {
			return addr, nil
		}
	}
	if node != "" {
		err = fmt.Errorf("%s: %w", node, err)
	}
	return addr, err
}

func (r *podRange) give(node string, addr netip.Addr) {
	for _, pool := range r.pools(node) {
		if pool.give(addr) {
			return
		}
	}
}

// First and last port of the API server's default --service-node-port-range.
const firstNodePort, lastNodePort = 30000, 32767

// nodePortRange allocates node ports, which are unique in the cluster.
type nodePortRange struct {
	next  int32
	freed []int32
	taken map[int32]bool
}

func (p *nodePortRange) take() (int32, error) {
	for firstNodePort+p.next <= lastNodePort {
		port := firstNodePort + p.next
		p.next++
		if !p.taken[port] {
			return port, nil
		}
	}
	if len(p.freed) == 0 {
		return 0, fmt.Errorf("node ports: all %d of %d-%d are in use; ask for fewer NodePort and LoadBalancer Services or ports", lastNodePort-firstNodePort+1, firstNodePort, lastNodePort)
	}
	port := p.freed[0]
	p.freed = p.freed[1:]
	return port, nil
}

func (p *nodePortRange) give(port int32) {
	if port != 0 {
		delete(p.taken, port)
		p.freed = append(p.freed, port)
	}
}
