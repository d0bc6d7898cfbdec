package manifests

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/internal/inet"
)

// addressBook maps addresses to their owners. Pools of one kind of address (clusterIPs, pod addresses) share one book,
// so that no address is allocated twice.
type addressBook map[netip.Addr]string

// reserve makes owner the owner of the address. If the address has another owner, reserve returns that owner.
func (b addressBook) reserve(address netip.Addr, owner string) (conflict string) {
	if other, taken := b[address]; taken && other != owner {
		return other
	}
	b[address] = owner
	return ""
}

// addressPool allocates the addresses of some prefixes of one family in ascending order. It skips the address of the
// prefix itself and, in IPv4, its broadcast address: a packet to either does not go to one host.
type addressPool struct {
	prefixes []netip.Prefix
	started  bool       // allocation in prefixes[0] has begun
	next     netip.Addr // in prefixes[0], once started; invalid after the last address
	skip     int        // addresses skipped at the start of each prefix
	book     addressBook
}

// newAddressPool returns a pool of those prefixes that are of the family.
func newAddressPool(prefixes []netip.Prefix, family corev1.IPFamily, skip int, book addressBook) *addressPool {
	pool := &addressPool{skip: skip, book: book}
	for _, prefix := range prefixes {
		if inet.FamilyOf(prefix.Addr()) == family {
			pool.prefixes = append(pool.prefixes, prefix.Masked())
		}
	}
	return pool
}

// take allocates the next free address to owner.
func (p *addressPool) take(owner string) (netip.Addr, error) {
	for all := p.prefixes; len(p.prefixes) > 0; {
		prefix := p.prefixes[0]
		if !p.started {
			p.next, p.started = prefix.Addr(), true
			for range 1 + p.skip {
				p.next = p.next.Next()
			}
		}
		address := p.next
		if !prefix.Contains(address) || isBroadcast(prefix, address) {
			if len(p.prefixes) == 1 {
				return netip.Addr{}, fmt.Errorf("no address is free in %s", joinPrefixes(all))
			}
			p.prefixes, p.started = p.prefixes[1:], false
			continue
		}
		p.next = address.Next()
		if _, taken := p.book[address]; !taken {
			p.book[address] = owner
			return address, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("no range of this family is set")
}

// isBroadcast reports whether address is the last one of an IPv4 prefix that has room for hosts.
func isBroadcast(prefix netip.Prefix, address netip.Addr) bool {
	return address.Is4() && prefix.Bits() < 31 && !prefix.Contains(address.Next())
}

func joinPrefixes(prefixes []netip.Prefix) string {
	texts := make([]string, len(prefixes))
	for i, prefix := range prefixes {
		texts[i] = prefix.String()
	}
	return strings.Join(texts, ", ")
}

// PortRange is a range of port numbers, both ends included.
type PortRange struct{ First, Last int32 }

type protocolPort struct {
	protocol corev1.Protocol
	port     int32
}

// portPool allocates node ports in ascending order. Like the API server, it allocates a number for all protocols at
// once. Explicit ports conflict only within their protocol, as rules do.
type portPool struct {
	limits PortRange
	next   int32
	owner  map[protocolPort]string
	taken  map[int32]bool
}

func newPortPool(limits PortRange) *portPool {
	return &portPool{limits: limits, next: limits.First, owner: map[protocolPort]string{}, taken: map[int32]bool{}}
}

func (p *portPool) reserve(port int32, protocol corev1.Protocol, owner string) (conflict string) {
	key := protocolPort{protocol, port}
	if other, taken := p.owner[key]; taken && other != owner {
		return other
	}
	p.owner[key], p.taken[port] = owner, true
	return ""
}

func (p *portPool) take(protocol corev1.Protocol, owner string) (int32, error) {
	for ; p.next <= p.limits.Last; p.next++ {
		if !p.taken[p.next] {
			p.reserve(p.next, protocol, owner)
			return p.next, nil
		}
	}
	return 0, fmt.Errorf("no node port is free in %d-%d", p.limits.First, p.limits.Last)
}
