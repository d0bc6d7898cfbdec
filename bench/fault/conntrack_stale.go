package fault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/bench/lab/netns"
	"synclab/bench/pass"
	"synclab/bench/subject"
	"synclab/internal/inet"
	"synclab/scenarios"
	"synclab/sim"
)

func init() {
	register(Kind{
		Name: scenarios.FaultConntrackStale, inject: (*Faults).leaveStale, lasts: atOnce, shows: entriesGone,
		spares: []spare{{"%s translates no packets with conntrack", func(e *pass.Env, _ *scenarios.Fault) bool {
			return e.About.Carrier == subject.Sockets || e.About.Carrier == subject.Relay
		}}},
	})
}

// leaveStale makes UDP connections to Services that an endpoint each has answered, and then removes these endpoints.
func (r *Faults) leaveStale(ctx context.Context, d *activeFault) error {
	if err := netns.Guard(); err != nil {
		return err
	}
	to, leaving := chooseLeaving(r.World.Objects(), d.Services, d.random)
	if len(to) == 0 {
		r.note(d, "no Service has a UDP port and two ready endpoints, so that one can go")
		return nil
	}
	stale, err := newStale(ctx, to, d.Flows, staleMark+uint32(r.count))
	if err != nil {
		return err
	}
	d.stillMissing = func() (string, error) { return stale.look(r.Clock.Now()) }
	r.start(d)
	r.note(d, "%d conntrack entries of %d Services become stale", stale.made, len(to))
	return r.Play(ctx, d.step, func() (sim.Trace, error) { return r.World.Remove(leaving), nil })
}

// staleMark is the mark of the entries of the first fault; each other fault has a later one.
const staleMark = 0x57a1e000

// listAgain is the time after which stale entries are counted again, whatever the size of the table.
const listAgain = 500 * time.Millisecond

// staleEntries counts the entries that one fault made. A count lists the table, which takes CPU time. So while entries are
// being deleted, the table's size says when the last one may be gone.
type staleEntries struct {
	mark       uint32
	made, left int
	least      int // size of the table without them
	size       int // of the table, at the last look
	counted    int // size at the last count
	at         time.Time
}

// newStale makes n entries or a few more.
func newStale(ctx context.Context, to []translated, n int, mark uint32) (*staleEntries, error) {
	filler, err := newFiller()
	if err != nil {
		return nil, err
	}
	defer unix.Close(filler.fd)
	filler.to, filler.most, filler.mark = to, n, mark
	full, err := filler.fill(ctx)
	if err != nil {
		return nil, err
	}
	if full {
		return nil, fmt.Errorf("the conntrack table is full after %d of %d entries: raise net.netfilter.nf_conntrack_max of the machine, or use fewer flows", filler.made, n)
	}
	size, err := tableSize()
	return &staleEntries{mark: mark, made: filler.made, left: filler.made, least: size - filler.made, size: size, counted: size}, err
}

// look returns how many entries are left, in words.
func (s *staleEntries) look(now time.Time) (string, error) {
	size, err := tableSize()
	if err != nil {
		return "", err
	}
	rests := size == s.size
	s.size = size
	if size <= s.least || rests && size != s.counted || now.Sub(s.at) >= listAgain {
		filler, err := newFiller()
		if err != nil {
			return "", err
		}
		defer unix.Close(filler.fd)
		if s.left, err = filler.count(s.mark); err != nil {
			return "", err
		}
		s.counted, s.at = size, now
	}
	if s.left == 0 {
		return "", nil
	}
	return fmt.Sprintf("%d of %d conntrack entries still lead to an endpoint that is gone", s.left, s.made), nil
}

// tableSize returns the number of entries of this namespace's conntrack table.
func tableSize() (int, error) {
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
	if err != nil {
		return 0, fmt.Errorf("size of the conntrack table: %w", err)
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// chooseLeaving chooses at most n Services, and a ready endpoint of each that is not the last one.
func chooseLeaving(o *sim.Objects, n int, random *rand.Rand) (to []translated, leaving map[string]bool) {
	services := map[string]*corev1.Service{}
	for _, s := range o.Services {
		services[s.Namespace+"/"+s.Name] = s
	}
	leaving = map[string]bool{}
	for _, i := range random.Perm(len(o.Slices)) {
		slice := o.Slices[i]
		name := slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName]
		service := services[name]
		if service == nil || !sim.Proxied(service) || len(to) == n {
			continue
		}
		var ready []netip.Addr
		for _, e := range slice.Endpoints {
			if addr, ok := inet.ParseAddr(e.Addresses[0]); ok && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				ready = append(ready, addr)
			}
		}
		frontend, target, ok := udpPort(service, slice)
		if !ok || len(ready) < 2 {
			continue
		}
		endpoint := ready[random.IntN(len(ready))]
		to = append(to, translated{frontend, netip.AddrPortFrom(endpoint, target)})
		leaving[endpoint.String()] = true
		delete(services, name) // its other slices, of the other family
	}
	return to, leaving
}

// udpPort returns a cluster IP with a UDP port, of the slice's family, and the port of the slice's endpoints.
func udpPort(s *corev1.Service, slice *discoveryv1.EndpointSlice) (frontend netip.AddrPort, target uint16, ok bool) {
	for _, ip := range append([]string{s.Spec.ClusterIP}, s.Spec.ClusterIPs...) {
		addr, parsed := inet.ParseAddr(ip)
		if !parsed || string(inet.FamilyOf(addr)) != string(slice.AddressType) {
			continue
		}
		for _, p := range s.Spec.Ports {
			for _, of := range slice.Ports {
				if p.Protocol == corev1.ProtocolUDP && of.Port != nil && of.Name != nil && *of.Name == p.Name {
					return netip.AddrPortFrom(addr, uint16(p.Port)), uint16(*of.Port), true
				}
			}
		}
	}
	return frontend, 0, false
}
