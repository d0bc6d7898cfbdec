package nftables

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/plan"
)

// A full sync keeps remembered clients.
func TestAffinityIsInherited(t *testing.T) {
	p := clusterPort(1, 3)
	p.AffinitySeconds = 100
	b := onKernel(t, plainSettings)
	mustSync(t, b, true, []*plan.ServicePort{p})
	key := append64(appendAddr(nil, endpoint(500).Addr.Addr()), uint64(idOf(p.Name)))
	b.encoder.addTimed(setAffinity, key, appendTarget(appendWord(nil, 1), p.Cluster[1].Addr), 100e9, 50e9)
	if err := b.encoder.commit(); err != nil {
		t.Fatal(err)
	}
	mustSync(t, another(t, plainSettings), true, []*plan.ServicePort{p})
	table, err := (&Reader{b.kernel}).Table(corev1.IPv4Protocol)
	if err != nil || table == b.encoder.table {
		t.Fatalf("table %s, %v", table, err)
	}
	e, there, err := b.kernel.Element(corev1.IPv4Protocol, table, setAffinity.String(), key)
	if err != nil || !there || targetOf(e.Data[4:], 4) != p.Cluster[1].Addr || e.Timeout != 100e3 || e.Expires > 50e3 || e.Expires == 0 {
		t.Errorf("%+v, %v, %v", e, there, err)
	}
}

// A full sync keeps a client that was remembered for a while and then again for longer.
func TestRenewedAffinityIsInherited(t *testing.T) {
	n := newNode(t, corev1.IPv4Protocol)
	p := n.port(1, corev1.ProtocolTCP, 1, 2, 3)
	p.AffinitySeconds = 50
	mustSync(t, n.b, true, []*plan.ServicePort{p})
	client := n.mustAddr(netNode, 1)
	at, _, err := n.ask(corev1.ProtocolTCP, client, p.ClusterIP, p.Port)
	if err != nil {
		t.Fatal(err)
	}
	longer := *p.ServicePort
	longer.AffinitySeconds = 5000
	p.ServicePort = &longer
	n.b.Update(plan.Delta{Changed: []*plan.ServicePort{p}})
	mustSync(t, n.b, false, []*plan.ServicePort{p})
	if again, _, err := n.ask(corev1.ProtocolTCP, client, p.ClusterIP, p.Port); err != nil || again != at {
		t.Fatalf("%s, before %s, %v", again, at, err)
	}
	mustSync(t, n.b, true, []*plan.ServicePort{p})
	elements, err := n.b.kernel.Elements(corev1.IPv4Protocol, n.b.encoder.table, setAffinity.String())
	if err != nil || len(elements) != 1 || time.Duration(elements[0].Expires)*time.Millisecond < time.Hour {
		t.Errorf("remembered: %+v, %v", elements, err)
	}
}

// A shorter timeout deletes the clients that would be remembered for longer than it, and no client of other Service
// ports.
func TestShorterAffinity(t *testing.T) {
	p, q := clusterPort(1, 3), clusterPort(2, 3)
	p.AffinitySeconds, q.AffinitySeconds = 5000, 5000
	b := onKernel(t, plainSettings)
	ports := []*plan.ServicePort{p, q}
	mustSync(t, b, true, ports)
	for _, size := range must(b.kernel.ReportedSizes(corev1.IPv4Protocol, b.encoder.table)) {
		if size.Elements < 0 {
			t.Skip("the kernel does not report the sizes of sets")
		}
	}
	remember := func(client int, p *plan.ServicePort, left time.Duration) {
		key := append64(appendAddr(nil, endpoint(500+client).Addr.Addr()), uint64(idOf(p.Name)))
		b.encoder.addTimed(setAffinity, key, appendTarget(appendWord(nil, 1), p.Cluster[1].Addr), 5000*time.Second, left)
	}
	remembered := func() map[ID]int {
		clients := map[ID]int{}
		for _, e := range must(b.kernel.Elements(corev1.IPv4Protocol, b.encoder.table, setAffinity.String())) {
			clients[clientOf(e)]++
		}
		return clients
	}
	shorten := func(seconds int, want int) {
		t.Helper()
		shorter := *p.ServicePort
		shorter.AffinitySeconds = seconds
		ports[0] = &plan.ServicePort{ServicePort: &shorter, Created: p.Created, HasEndpoints: true, Cluster: p.Cluster, Reachable: p.Reachable}
		b.Update(plan.Delta{Changed: ports[:1]})
		if result := mustSync(t, b, false, ports); result.Full {
			t.Fatal("a full sync")
		}
		if have := remembered(); have[idOf(p.Name)] != want || have[idOf(q.Name)] != 1 {
			t.Errorf("at %d s: %v", seconds, have)
		}
		noDrift(t, b)
	}
	for i := range 3 {
		remember(i, p, time.Duration(1+i)*time.Hour/3)
	}
	remember(0, q, time.Hour)
	if err := b.encoder.commit(); err != nil {
		t.Fatal(err)
	}
	shorten(4000, 3)
	shorten(3000, 2)
	shorten(100, 0)
	remember(7, p, time.Hour) // as if an earlier sync had left it
	if err := b.encoder.commit(); err != nil {
		t.Fatal(err)
	}
	mustSync(t, b, true, ports)
	if have := remembered(); have[idOf(p.Name)] != 0 || have[idOf(q.Name)] != 1 {
		t.Errorf("after a full sync: %v", have)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
