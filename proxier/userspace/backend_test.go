package userspace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"synclab/proxier/backend"
	"synclab/proxier/iptables"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

func servicePort(name string, protocol corev1.Protocol, clusterIP string, endpoints ...string) *plan.ServicePort {
	p := &plan.ServicePort{ServicePort: &tracker.ServicePort{
		Name:      tracker.ServicePortName{NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}, PortKey: tracker.PortKey{Protocol: protocol}},
		ClusterIP: netip.MustParseAddr(clusterIP), Port: 80,
	}}
	for _, text := range endpoints {
		p.Cluster = append(p.Cluster, &tracker.Endpoint{Addr: netip.MustParseAddrPort(text), Text: text, Ready: true})
	}
	return p
}

// trial is a backend at a loopback address, with tables in memory.
type trial struct {
	t     *testing.T
	b     *Backend
	model *iptables.Model
	log   bytes.Buffer
	ports []*plan.ServicePort
}

func newTrial(t *testing.T) *trial {
	tr := &trial{t: t, model: iptables.NewModel(corev1.IPv4Protocol)}
	settings := backend.Settings{Family: corev1.IPv4Protocol, NodeIP: netip.MustParseAddr("127.0.0.1")}
	var err error
	tr.b, err = New(Options{
		Options: backend.Options{Settings: func() (backend.Settings, error) { return settings, nil }, Clock: clock.RealClock{}},
		Tables:  tr.model, Report: &tr.log,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.b.Close() })
	return tr
}

// put adds or replaces a Service port.
func (tr *trial) put(p *plan.ServicePort) {
	tr.ports = append(slices.DeleteFunc(tr.ports, func(q *plan.ServicePort) bool { return p.Name == q.Name }), p)
	tr.b.Update(plan.Delta{Changed: []*plan.ServicePort{p}})
}

func (tr *trial) remove(p *plan.ServicePort) {
	tr.ports = slices.DeleteFunc(tr.ports, func(q *plan.ServicePort) bool { return p.Name == q.Name })
	tr.b.Update(plan.Delta{Removed: []tracker.ServicePortName{p.Name}})
}

func (tr *trial) sync(full bool) (backend.Result, error) {
	return tr.b.Sync(context.Background(), backend.Request{Full: full, Ports: tr.ports})
}

func (tr *trial) mustSync(full bool) backend.Result {
	tr.t.Helper()
	result, err := tr.sync(full)
	if err != nil {
		tr.t.Fatal(err)
	}
	if drift, err := tr.b.Drift()(context.Background()); drift != "" || err != nil {
		tr.t.Errorf("after the sync: drift %q, %v", drift, err)
	}
	return result
}

// lines returns the new lines of the report.
func (tr *trial) lines() []Line {
	tr.t.Helper()
	var all []Line
	for decoder := json.NewDecoder(&tr.log); decoder.More(); {
		var line Line
		if err := decoder.Decode(&line); err != nil {
			tr.t.Fatal(err)
		}
		all = append(all, line)
	}
	return all
}

func TestRules(t *testing.T) {
	tr := newTrial(t)
	web := servicePort("web", corev1.ProtocolTCP, "10.96.0.1", "10.0.0.1:8080")
	web.ExternalIPs, web.NodePort = []netip.Addr{netip.MustParseAddr("203.0.113.1")}, 30080
	tr.put(web)
	result := tr.mustSync(true)
	if count := result.Installed[iptables.NAT]; count != (backend.Count{Chains: 4, Rules: 6}) || len(result.Runs) != 1 {
		t.Errorf("installed %+v, runs %+v", count, result.Runs)
	}
	socket := tr.b.ports[web.Name].socket.String()
	var text bytes.Buffer
	if err := tr.model.Save(&text); err != nil {
		t.Fatal(err)
	}
	for _, rule := range []string{
		"-A PREROUTING -m comment --comment \"handle ClusterIPs; NOTE: this must be before the NodePort rules\" -j KUBE-PORTALS-CONTAINER",
		"-A OUTPUT -m addrtype --dst-type LOCAL -m comment --comment \"handle service NodePorts; NOTE: this must be the last rule in the chain\" -j KUBE-NODEPORT-HOST",
		"-A KUBE-PORTALS-CONTAINER -d 10.96.0.1/32 -p tcp -m comment --comment \"ns/web\" -m tcp --dport 80 -j DNAT --to-destination " + socket,
		"-A KUBE-PORTALS-HOST -d 203.0.113.1/32 -p tcp -m comment --comment \"ns/web\" -m tcp --dport 80 -j DNAT --to-destination " + socket,
		"-A KUBE-NODEPORT-CONTAINER -p tcp -m comment --comment \"ns/web\" -m tcp --dport 30080 -j DNAT --to-destination " + socket,
	} {
		if !strings.Contains(strings.ReplaceAll(text.String(), `"`, ""), strings.ReplaceAll(rule, `"`, "")) {
			t.Errorf("no rule %s in\n%s", rule, text.String())
		}
	}
	tr.mustSync(true)
	if n := len(tr.model.Chain(iptables.NAT, "PREROUTING")); n != 2 {
		t.Errorf("after two full syncs PREROUTING has %d jumps", n)
	}
}

// Other endpoints are no reason to write rules. Other frontends are, and a removed Service port's socket is closed.
func TestChanges(t *testing.T) {
	tr := newTrial(t)
	web, dns := servicePort("web", corev1.ProtocolTCP, "10.96.0.1", "10.0.0.1:8080"), servicePort("dns", corev1.ProtocolUDP, "10.96.0.2", "10.0.0.2:53")
	tr.put(web)
	tr.put(dns)
	tr.mustSync(true)
	lines := tr.lines()
	if len(lines) != 3 || !lines[0].Started || lines[1].Name() != dns.Name || lines[2].Socket != tr.b.ports[web.Name].socket.Port() || lines[2].Cluster[0] != "10.0.0.1:8080" {
		t.Errorf("the report of a start: %+v", lines)
	}
	before, _ := tr.b.Fingerprint()
	tr.put(servicePort("web", corev1.ProtocolTCP, "10.96.0.1", "10.0.0.1:8080", "10.0.0.3:8080"))
	if result := tr.mustSync(false); len(result.Runs) != 1 || result.Runs[0].Bytes != 0 {
		t.Errorf("a changed endpoint: %+v", result.Runs)
	}
	if after, _ := tr.b.Fingerprint(); after != before {
		t.Error("a changed endpoint changed rules")
	}
	if lines := tr.lines(); len(lines) != 1 || len(lines[0].Cluster) != 2 {
		t.Errorf("the report of an endpoint: %+v", lines)
	}
	if result := tr.mustSync(false); len(result.Runs) != 0 || tr.b.Dirty() {
		t.Errorf("a sync without a change: %+v", result.Runs)
	}
	tr.put(servicePort("dns", corev1.ProtocolUDP, "10.96.0.9", "10.0.0.2:53"))
	tr.remove(web)
	if result := tr.mustSync(false); len(result.Runs) != 1 || result.Runs[0].Bytes == 0 || result.Installed[iptables.NAT].Rules != 2 {
		t.Errorf("other frontends: %+v", result)
	}
	if lines := tr.lines(); len(lines) != 2 || lines[1].Name() != web.Name || lines[1].Socket != 0 || len(tr.b.ports) != 1 {
		t.Errorf("the report of a removed Service: %+v", lines)
	}
	frontends, rules := tr.b.Dispatch(tr.ports)
	if want := netip.MustParseAddrPort("10.96.0.9:80"); rules != 1 || len(frontends) != 1 || frontends[0].Addr != want || frontends[0].Position != 1 {
		t.Errorf("dispatch: %+v, %d", frontends, rules)
	}
}

// A failed write is repeated, whatever the next sync is asked for, and what cannot be carried is refused alone.
func TestFailedWriteAndRefusal(t *testing.T) {
	tr := newTrial(t)
	web := servicePort("web", corev1.ProtocolTCP, "10.96.0.1", "10.0.0.1:8080")
	tr.put(web)
	tr.model.Fail = func(*iptables.Payload) error { return errors.New("no") }
	if _, err := tr.sync(true); err == nil || !tr.b.Dirty() {
		t.Errorf("a failed restore: %v, dirty %t", err, tr.b.Dirty())
	}
	tr.model.Fail = nil
	sctp := servicePort("sctp", corev1.ProtocolSCTP, "10.96.0.3", "10.0.0.1:8080")
	tr.put(sctp)
	result := tr.mustSync(false)
	if result.Refused[sctp.Name] == nil || len(result.Refused) != 1 || result.Installed[iptables.NAT].Rules != 2 {
		t.Errorf("result %+v", result)
	}
	tr.model.Flush(iptables.NAT)
	if drift, err := tr.b.Drift()(context.Background()); drift == "" || err != nil {
		t.Errorf("flushed tables: drift %q, %v", drift, err)
	}
	tr.mustSync(true)
	tr.remove(sctp)
	if result := tr.mustSync(false); len(result.Refused) != 0 {
		t.Errorf("refused: %v", result.Refused)
	}
}

// A socket's number is unique over protocols: a rule's target must name one Service port.
func TestNumbers(t *testing.T) {
	tr := newTrial(t)
	for i := range 200 {
		protocol := corev1.ProtocolTCP
		if i%2 > 0 {
			protocol = corev1.ProtocolUDP
		}
		tr.put(servicePort("s"+string(rune('a'+i)), protocol, netip.AddrFrom4([4]byte{10, 96, 1, byte(i)}).String()))
	}
	tr.mustSync(true)
	if len(tr.b.numbers) != 200 || len(tr.b.ports) != 200 {
		t.Errorf("%d numbers, %d ports", len(tr.b.numbers), len(tr.b.ports))
	}
}
