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
	"synclab/proxier/tracker"
	"synclab/sim"
)

// Restarted is what there was right before the subject was started again.
type Restarted struct {
	Objects uint64 // Digest of them
	Saved   map[corev1.IPFamily]Saved
	Nft     map[corev1.IPFamily]*NftTable
	// Flows were planted as flows of Services, each at an endpoint that serves it.
	Flows map[corev1.IPFamily][]conntrack.Flow
}

// Digest of objects: the same as long as nothing changes.
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

// checkRestart: where the objects are those of before, and the kernel was as wanted then, it holds the same now; UDP flows
// go on.
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
				r.violated(service, "%s: UDP flow %v -> %v at %v, which serves it, was deleted by a restart", family, before.Src, before.Dst, before.ReplySrc)
			}
		}
	}
	return nil
}

func (e *Evidence) sameAfterRestart(family corev1.IPFamily, x *expected, r *report) {
	if before := e.Restarted.Nft[family]; before != nil && e.Nft[family] != nil {
		if len(differencesNft(x.nft[family], before)) > 0 {
			return // it had something to mend
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

// Serving gives a flow of each of some UDP Services, from nobody's address to an endpoint that serves it and that the
// kernel's rules lead to: for Restarted.Flows. Who does not know yet of an endpoint that is new may delete flows to it, and
// there are none.
func (e *Evidence) Serving(family corev1.IPFamily, most int) []conntrack.Flow {
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
		f := conntrack.Flow{Src: foreignClient(family, len(flows)), ReplySrc: port.Cluster[i].Addr}
		f.Dst, f.ReplyDst = netip.AddrPortFrom(port.ClusterIP, port.Port), f.Src
		flows = append(flows, f)
	}
	return flows
}

// leadTo says whether rules of the kernel lead to an endpoint. Where nobody has read them, they may.
func (e *Evidence) leadTo(family corev1.IPFamily, ep netip.AddrPort) bool {
	switch saved, nft := e.Saved[family], e.Nft[family]; {
	case saved != nil:
		target := " --to-destination " + ep.String()
		for _, chain := range saved["nat"] {
			if slices.ContainsFunc(chain.Rules, func(r Rule) bool { return strings.HasSuffix(r.Text, target) }) {
				return true
			}
		}
		return false
	case nft != nil:
		text := string(binary.BigEndian.AppendUint16(ep.Addr().AsSlice(), ep.Port()))
		for _, value := range nft.Sets[endpointsSet] {
			if strings.Contains(value, text) {
				return true
			}
		}
		return false
	}
	return true
}

// firstClient is the first port of clients that are nobody.
const firstClient = 41007

func foreignClient(family corev1.IPFamily, i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(foreignFrom[family]), uint16(firstClient+i))
}
