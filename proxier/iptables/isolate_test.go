package iptables

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"synclab/proxier/backend"
)

// planned is a Backend on a model, with the plan for it.
type planned struct {
	*testPlan
	t *testing.T
	m *Model
	b *Backend
	// layout of the rules.
	layout Layout
}

// newPlanned has so many Services of all kinds, each with endpoints of the given last octets.
func newPlanned(t *testing.T, layout Layout, services int, octets ...int) *planned {
	p := &planned{testPlan: newTestPlan(), t: t, m: NewModel(corev1.IPv4Protocol), layout: layout}
	p.start()
	for i := range services {
		p.set(service(i, i%3), endpoints(i, octets...))
	}
	return p
}

// start replaces the process: the new one knows nothing of what the old one wrote.
func (p *planned) start() {
	p.t.Helper()
	settings := p.rules.Settings()
	b, err := New(Options{
		Options: backend.Options{
			Settings: func() (backend.Settings, error) { return settings, nil },
			Clock:    clock.RealClock{}, Log: func(string, ...any) {},
		},
		Tables: p.m, Layout: p.layout, Variant: Legacy,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	b.rules.Rerender(b.rules.Settings(), p.plan.Ports())
	p.b, p.rules = b, b.rules
}

func (p *planned) sync(full bool) {
	p.t.Helper()
	p.replan()
	if _, err := p.b.Sync(p.t.Context(), backend.Request{Full: full, Ports: p.plan.Ports()}); err != nil {
		p.t.Fatal(err)
	}
}

// refusing makes the model refuse the COMMIT of any table that contains a text, and counts the refusals. Tables before
// it are committed, as by the tools.
func (p *planned) refusing(refused string) (count *int) {
	count = new(int)
	p.m.Fail = func(payload *Payload) error {
		text := string(payload.Text())
		at := strings.Index(text, refused)
		if at < 0 {
			return nil
		}
		*count++
		table := max(strings.LastIndex(text[:at], "*"+string(Filter)+"\n"), strings.LastIndex(text[:at], "*"+string(NAT)+"\n"))
		if _, err := p.m.apply([]byte(text[:table])); err != nil {
			p.t.Error(err)
		}
		line := 1 + strings.Count(text[:at+strings.Index(text[at:], "COMMIT\n")], "\n")
		return &RestoreError{Tool: "model", ExitCode: 1, Line: line, Owner: payload.OwnerOf(line), Err: errors.New("refused")}
	}
	return count
}

// text returns a table as iptables-save prints it.
func (p *planned) text(table Table) string {
	p.t.Helper()
	var saved bytes.Buffer
	if err := p.m.Save(&saved); err != nil {
		p.t.Fatal(err)
	}
	_, text, _ := strings.Cut(saved.String(), "*"+string(table)+"\n")
	text, _, _ = strings.Cut(text, "COMMIT\n")
	return text
}

// converges checks that, once nothing is refused any more, the tables equal those that a process writes into empty
// ones.
func (p *planned) converges() {
	p.t.Helper()
	p.m.Fail, p.m.Committed = nil, nil
	p.sync(true)
	now := map[Table]string{NAT: p.text(NAT), Filter: p.text(Filter)}
	p.m = NewModel(corev1.IPv4Protocol)
	p.start()
	p.sync(true)
	for table, text := range now {
		if want := p.text(table); text != want {
			p.t.Errorf("%s is\n%s\na fresh start has\n%s", table, text, want)
		}
	}
}

func eachLayout(t *testing.T, test func(*testing.T, Layout)) {
	for _, layout := range []Layout{Classic, Tree} {
		t.Run(string(layout), func(t *testing.T) { test(t, layout) })
	}
}

// The kernel refuses filter after it accepted nat. No packet goes to a removed endpoint while the sync looks for the
// cause. The refused Service port keeps its new rules of nat, without the refused ones of filter.
func TestRefusedAfterNAT(t *testing.T) {
	eachLayout(t, func(t *testing.T, layout Layout) {
		const removed, added = "10.128.0.1:8080", "10.128.0.2:8080"
		p := newPlanned(t, layout, 8, 1)
		p.set(nil, endpoints(2)) // a load balancer's, which gets endpoints below
		p.sync(true)

		taken := false
		p.m.Committed = func() error {
			now := p.text(NAT)
			taken = taken || strings.Contains(now, added)
			if taken && strings.Contains(now, removed) {
				t.Error("rules send packets to a removed endpoint again")
			}
			return nil
		}
		refusals := p.refusing("svc-2 traffic not accepted by KUBE-FW-")
		p.set(nil, endpoints(0, 2))
		p.set(nil, endpoints(2, 1))
		p.sync(false)
		if !taken || *refusals == 0 || len(p.b.refusals) != 1 || p.b.refusals[portName("ns", "svc-2", "", corev1.ProtocolTCP)] == nil {
			t.Fatalf("nat taken: %v; %d payloads refused; Service ports refused: %v", taken, *refusals, p.b.refusals)
		}
		left := p.text(NAT)
		if !strings.Contains(left, added) || !strings.Contains(left, "10.128.2.1:8080") {
			t.Errorf("nat lacks rules that it accepted:\n%s", left)
		}
		p.sync(false)
		if now := p.text(NAT); now != left {
			t.Errorf("nat changes by itself:\n%s\nit was\n%s", now, left)
		}
		p.converges()
	})
}

// A new process finds a Service whose rules the kernel refuses. The Services whose rules are installed as desired keep
// working all the time, with the rules of the earlier process.
func TestRefusedAtStart(t *testing.T) {
	eachLayout(t, func(t *testing.T, layout Layout) {
		p := newPlanned(t, layout, 9, 1, 2)
		p.set(nil, endpoints(6))
		p.sync(true)
		p.set(nil, endpoints(0, 3))
		p.set(service(9, 0), endpoints(9, 1))
		p.replan()
		p.start()

		commits := 0
		p.m.Committed = func() error {
			commits++
			now := p.text(NAT)
			for _, endpoint := range []string{"10.128.1.1:8080", "10.128.2.2:8080", "10.128.8.1:8080"} {
				if !strings.Contains(now, endpoint) {
					t.Errorf("no rule sends packets to %s while rules of another Service are refused", endpoint)
				}
			}
			return nil
		}
		refusals := p.refusing("--to-destination 10.128.9.1:8080")
		p.sync(true)
		if *refusals == 0 || commits == 0 || len(p.b.refusals) != 1 || p.b.refusals[portName("ns", "svc-9", "", corev1.ProtocolTCP)] == nil {
			t.Fatalf("%d commits, %d payloads refused; Service ports refused: %v", commits, *refusals, p.b.refusals)
		}
		if now := p.text(NAT); !strings.Contains(now, "10.128.0.3:8080") {
			t.Errorf("what changed while no process ran is held back:\n%s", now)
		}
		p.converges()
	})
}

// The kernel refuses rules that it already has: the sync still finds their Service port.
func TestRefusedStanding(t *testing.T) {
	eachLayout(t, func(t *testing.T, layout Layout) {
		p := newPlanned(t, layout, 9, 1, 2)
		p.sync(true)
		p.start()
		p.refusing("--to-destination 10.128.4.1:8080")
		p.sync(true)
		if len(p.b.refusals) != 1 || p.b.refusals[portName("ns", "svc-4", "", corev1.ProtocolTCP)] == nil {
			t.Fatalf("Service ports refused: %v", p.b.refusals)
		}
		if now := p.text(NAT); !strings.Contains(now, "10.128.5.1:8080") {
			t.Errorf("another Service is left out too:\n%s", now)
		}
		p.converges()
	})
}
