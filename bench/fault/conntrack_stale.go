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
	"k8s.io/apimachinery/pkg/types"

	"synclab/bench/lab/netns"
	"synclab/bench/mirror"
	"synclab/bench/pass"
	"synclab/bench/subject"
	"synclab/proxier/plan"
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
	to, leaving := chooseLeaving(r.World.Objects(), r.PlanNode(), r.Families, d.Services, d.random)
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

// chooseLeaving chooses at most n Services with a UDP port of two endpoints or more, and one of these endpoints each.
func chooseLeaving(o *sim.Objects, node plan.Node, families []corev1.IPFamily, n int, random *rand.Rand) ([]translated, map[string]bool) {
	desired := mirror.New(node, families...)
	desired.Load(o.Services, o.Slices, time.Time{})
	var to []translated
	var ports []*plan.ServicePort
	for _, family := range families {
		ports = append(ports, desired.Of(family).Ports()...)
	}
	leaving, used := map[string]bool{}, map[types.NamespacedName]bool{}
	for _, i := range random.Perm(len(ports)) {
		p := ports[i]
		if len(to) == n || used[p.Name.NamespacedName] || p.Name.Protocol != corev1.ProtocolUDP || len(p.Cluster) < 2 {
			continue
		}
		used[p.Name.NamespacedName] = true
		endpoint := p.Cluster[random.IntN(len(p.Cluster))].Addr
		to = append(to, translated{netip.AddrPortFrom(p.ClusterIP, p.Port), endpoint})
		leaving[endpoint.Addr().String()] = true
	}
	return to, leaving
}
