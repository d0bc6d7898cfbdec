package nftables

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/backend"
	"synclab/proxier/kernel"
)

// asked reads one table: the kernel's, or a Model.
type asked interface {
	// elements returns the elements of a set; none when there is no such set.
	elements(s set) ([]kernel.NftElement, error)
	// element returns an element of a map by its key; false when there is none.
	element(s set, key []byte) ([]byte, bool, error)
}

// Inherited returns the UDP frontends of all tables that packets meet. For a moment during a full sync there are two,
// and a process may have ended then.
func (b *Backend) Inherited() (found []backend.Inherited, err error) {
	switch {
	case b.model != nil && !b.model.Exists:
		return nil, nil
	case b.model != nil:
		return heritage(askedModel{b.model}, b.opts.Family)
	}
	if err := b.open(); err != nil {
		return nil, err
	}
	for _, table := range tableNames {
		_, active, err := b.kernel.Uses(b.opts.Family, table, baseChains[0].name)
		if err != nil {
			return nil, err
		}
		if !active {
			continue
		}
		more, err := heritage(askedKernel{b.kernel, b.opts.Family, table}, b.opts.Family)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return found, nil
}

// heritage returns the UDP frontends of a table with their endpoints. It reads all elements of lists, and of endpoints
// those of UDP Service ports.
func heritage(of asked, family corev1.IPFamily) ([]backend.Inherited, error) {
	lists, err := of.elements(setLists)
	if err != nil {
		return nil, err
	}
	var found []backend.Inherited
	endpoints := map[list][]netip.AddrPort{}
	for _, e := range lists {
		frontend, proto, ok := frontendOf(e.Key, family)
		if !ok || proto != unix.IPPROTO_UDP || len(e.Data) != setLists.valueLen(family) {
			continue
		}
		way := list{Class(binary.BigEndian.Uint64(e.Key[len(e.Key)-8:])), ID(to64(e.Data))}
		if _, read := endpoints[way]; !read {
			if endpoints[way], err = slotsOf(of, way, family); err != nil {
				return nil, err
			}
		}
		found = append(found, backend.Inherited{Frontend: frontend, Endpoints: endpoints[way]})
	}
	return found, nil
}

// frontendOf parses the beginning of a key in lists, where NodePorts have the unspecified address.
func frontendOf(key []byte, family corev1.IPFamily) (frontend netip.AddrPort, proto byte, ok bool) {
	if len(key) != setLists.keyLen(family) {
		return frontend, 0, false
	}
	n := addrLen(family)
	addr, _ := netip.AddrFromSlice(key[:n])
	if addr.IsUnspecified() {
		addr = netip.Addr{}
	}
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(key[n+4:])), key[n], true
}

// slotsOf returns the endpoints that packets of a class may get, all and those of the node. Slots are filled without a
// gap.
func slotsOf(of asked, way list, family corev1.IPFamily) (targets []netip.AddrPort, err error) {
	all, local := way.class.slots()
	for _, slots := range []slotRange{all, local} {
		for i := range slots.count {
			target, there, err := of.element(slots.in, slotKey(nil, way.id, slots.first, i))
			if err == nil && !there { // a table of an earlier version, which had one map
				target, there, err = of.element(setEndpoints, slotKey(nil, way.id, slots.first, i))
			}
			if err != nil {
				return nil, err
			}
			if !there || len(target) != slots.in.valueLen(family) {
				break
			}
			targets = append(targets, targetOf(target, addrLen(family)))
		}
	}
	return targets, nil
}

type askedKernel struct {
	*kernel.Nftables
	family corev1.IPFamily
	table  string
}

func (k askedKernel) elements(s set) ([]kernel.NftElement, error) {
	return k.Elements(k.family, k.table, s.String())
}

func (k askedKernel) element(s set, key []byte) ([]byte, bool, error) {
	e, there, err := k.Element(k.family, k.table, s.String(), key)
	return e.Data, there, err
}

type askedModel struct{ *Model }

func (m askedModel) elements(s set) (all []kernel.NftElement, err error) {
	for key, e := range m.Sets[s.String()].Elements {
		all = append(all, kernel.NftElement{Key: []byte(key), Data: e.Value})
	}
	return all, nil
}

func (m askedModel) element(s set, key []byte) ([]byte, bool, error) {
	e, there := m.Sets[s.String()].Elements[string(key)]
	return e.Value, there, nil
}
