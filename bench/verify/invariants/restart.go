package invariants

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/conntrack"
	"synclab/proxier/iptables/rule"
	"synclab/proxier/tracker"
	"synclab/sim"
)

// Restarted is the state right before the subject was restarted.
type Restarted struct {
	Objects uint64 // Digest of the objects
	Saved   map[corev1.IPFamily]Saved
	Nft     map[corev1.IPFamily]*NftTable
	// Flows were planted as flows of Services, each to an endpoint that serves it.
	Flows map[corev1.IPFamily][]conntrack.Flow
}

// Digest of objects: equal as long as no object changes.
func Digest(o *sim.Objects) uint64 {
	h := fnv.New64a()
	for _, svc := range o.Services {
		fmt.Fprintln(h, svc.Namespace, svc.Name, svc.ResourceVersion)
	}
	for _, slice := range o.Slices {
		fmt.Fprintln(h, slice.Namespace, slice.Name, slice.ResourceVersion)
	}
	return h.Sum64()
}

// checkRestart: if the objects are unchanged and the kernel's state was correct before the restart, it is the same
// after the restart. UDP flows stay.
func checkRestart(ctx context.Context, e *Evidence, r *report) error {
	if e.Restarted.Objects != Digest(e.Objects) {
		return nil
	}
	x, err := e.expect(ctx)
	if err != nil {
		return err
	}
	for _, family := range e.Families {
		e.sameAfterRestart(family, x, r)
		want, err := e.expectation(family)
		if err != nil {
			return err
		}
		for _, before := range e.Restarted.Flows[family] {
			if want.Stale(before) || e.Flows == nil {
				continue
			}
			r.checked++
			if !slices.ContainsFunc(e.Flows[family], func(f conntrack.Flow) bool { return sameFlow(f, before) }) {
				service, _ := want.owner(before)
				r.violated(service, "%s: a restart deleted UDP flow %v -> %v to %v, which serves it", family, before.Src, before.Dst, before.ReplySrc)
			}
		}
	}
	return nil
}

func (e *Evidence) sameAfterRestart(family corev1.IPFamily, x *expected, r *report) {
	if before := e.Restarted.Nft[family]; before != nil && e.Nft[family] != nil {
		if len(differencesNft(x.nft[family], before)) > 0 {
			return // the restart had something to repair
		}
		r.checked++
		for _, text := range differencesNft(x.nft[family], e.Nft[family]) {
			r.violated("", "%s: after a restart %s", family, text)
		}
	}
	before, now := e.Restarted.Saved[family], e.Saved[family]
	if before == nil || now == nil || len(differences(x.saved[family], before)) > 0 {
		return
	}
	before, now = before.own(), now.own()
	for _, table := range slices.Sorted(maps.Keys(before)) {
		r.checked++
		if text := sameTable(before[table], now[table]); text != "" {
			r.violated("", "%s table %s: after a restart %s", family, table, text)
		}
	}
}

// Serving returns one flow for each of some UDP Services, for Restarted.Flows. Each flow goes from an address of no
// host to a serving endpoint to which the kernel's rules DNAT. A proxy that does not know a new endpoint yet may delete
// flows to it, so there are none to such endpoints. first numbers the clients: flows of different restarts must differ,
// because the kernel keeps the older of two flows with the same client.
func (e *Evidence) Serving(family corev1.IPFamily, first, most int) []conntrack.Flow {
	var flows []conntrack.Flow
	p := e.plan(family)
	claims := claimed(p.Ports())
	for _, port := range p.Ports() {
		if port.Name.Protocol != corev1.ProtocolUDP || len(flows) == most ||
			claims[claim{port.ClusterIP, port.Port, port.Name.Protocol}] > 1 {
			continue
		}
		i := slices.IndexFunc(port.Cluster, func(ep *tracker.Endpoint) bool { return e.leadTo(family, ep.Addr) })
		if i < 0 {
			continue
		}
		f := conntrack.Flow{Src: foreignClient(family, first+len(flows)), ReplySrc: port.Cluster[i].Addr}
		f.Dst, f.ReplyDst = netip.AddrPortFrom(port.ClusterIP, port.Port), f.Src
		flows = append(flows, f)
	}
	return flows
}

// leadTo reports whether rules in the kernel DNAT to an endpoint. It returns true if the rules were not read.
func (e *Evidence) leadTo(family corev1.IPFamily, ep netip.AddrPort) bool {
	switch saved, nft := e.Saved[family], e.Nft[family]; {
	case saved != nil:
		for _, chain := range saved["nat"] {
			if slices.ContainsFunc(chain.Rules, func(r rule.Rule) bool { return r.Target.To == ep }) {
				return true
			}
		}
		return false
	case nft != nil:
		text := string(binary.BigEndian.AppendUint16(ep.Addr().AsSlice(), ep.Port()))
		for _, set := range endpointSets {
			for _, value := range nft.Sets[set] {
				if strings.Contains(value, text) {
					return true
				}
			}
		}
		return false
	}
	return true
}

// firstClient is the first port of clients that do not exist.
const firstClient = 41007

func foreignClient(family corev1.IPFamily, i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(foreignFrom[family]), uint16(firstClient+i))
}
