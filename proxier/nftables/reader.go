package nftables

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/kernel"
	"synclab/proxier/tracker"
)

// Reader looks up Service ports in the kernel's table as packets do. A lookup takes microseconds, whatever the table's
// size.
type Reader struct {
	kernel *kernel.Nftables
}

// OpenReader opens a reader of the network namespace that the thread is in.
func OpenReader() (*Reader, error) {
	k, err := kernel.OpenNftables()
	return &Reader{k}, err
}

// Close closes the reader.
func (r *Reader) Close() { r.kernel.Close() }

// FrontendLookup is the result of a frontend lookup: a Service port to which packets may be sent.
type FrontendLookup struct {
	Port  ID // IDOf a Service port's name
	Class Class
	// All are the endpoints of traffic that may go anywhere, Local those of traffic that must stay on the node. nil
	// where the frontend does not distinguish them.
	All, Local []netip.AddrPort
}

// IDOf returns the ID of a Service port.
func IDOf(name tracker.ServicePortName) ID { return idOf(name) }

// Table returns the name of the table that packets meet; empty: there is none. For a moment during a full sync there
// are two, and packets meet the newer one first.
func (r *Reader) Table(family corev1.IPFamily) (string, error) {
	found, newest := "", uint64(0)
	for _, name := range tableNames {
		_, active, err := r.kernel.Uses(family, name, baseChains[0].name)
		if err != nil || !active {
			if err != nil {
				return "", err
			}
			continue
		}
		handle, there, err := r.kernel.Table(family, name)
		if err != nil {
			return "", err
		}
		if there && handle >= newest {
			found, newest = name, handle
		}
	}
	return found, nil
}

// Frontend returns the ways that packets for an address and port may take, in order. Without a valid address it looks
// up a NodePort. None: no Service port has the frontend, or it has no endpoints.
func (r *Reader) Frontend(family corev1.IPFamily, protocol corev1.Protocol, addr netip.AddrPort) ([]FrontendLookup, error) {
	table, err := r.Table(family)
	if err != nil || table == "" {
		return nil, err
	}
	proto, err := protocolNumber(protocol)
	if err != nil {
		return nil, err
	}
	p := place{set: setFrontends, proto: proto, port: addr.Port(), addr: addr.Addr()}
	if !addr.Addr().IsValid() {
		p.set = setNodePorts
	}
	e, ok, err := r.kernel.Element(family, table, p.set.String(), p.key(nil))
	if err != nil || !ok {
		return nil, err
	}
	classes := []Class{Class(to64(e.Data))}
	if own := classes[0]; own.own() {
		if classes, err = r.inside(family, table, own); err != nil {
			return nil, err
		}
	}
	var ways []FrontendLookup
	for _, class := range classes {
		way, ok, err := r.way(family, table, p, class)
		if err != nil {
			return nil, err
		}
		if ok {
			ways = append(ways, way)
		}
	}
	return ways, nil
}

// inside returns the classes that a frontend's own chain jumps to.
func (r *Reader) inside(family corev1.IPFamily, table string, own Class) (classes []Class, err error) {
	rules, err := r.kernel.Rules(family, table, own.Chain())
	seen := map[string]bool{}
	for _, rule := range rules {
		if class, ok := classOfChain(rule.Jump); ok && !seen[rule.Jump] {
			seen[rule.Jump] = true
			classes = append(classes, class)
		}
	}
	return classes, err
}

func (r *Reader) way(family corev1.IPFamily, table string, p place, class Class) (FrontendLookup, bool, error) {
	e, ok, err := r.kernel.Element(family, table, setLists.String(), p.listKey(nil, class, addrLen(family)))
	if err != nil || !ok {
		return FrontendLookup{}, false, err
	}
	w := FrontendLookup{Port: ID(to64(e.Data)), Class: class}
	all, local := class.slots()
	if w.All, err = r.slots(family, table, w.Port, all); err == nil {
		w.Local, err = r.slots(family, table, w.Port, local)
	}
	return w, true, err
}

func (r *Reader) slots(family corev1.IPFamily, table string, id ID, of slotRange) (targets []netip.AddrPort, err error) {
	for i := range of.count {
		e, ok, err := r.kernel.Element(family, table, of.in.String(), slotKey(nil, id, of.first, i))
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, fmt.Errorf("%s table %s: Service port %016x has no endpoint %d of %d", family, table, uint64(id), i, of.count)
		}
		targets = append(targets, targetOf(e.Data, addrLen(family)))
	}
	return targets, nil
}

// targetOf parses the value of an endpoint.
func targetOf(b []byte, addrLen int) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(b[:addrLen])
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(b[addrLen:]))
}
