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

// The kernel refuses filter after it took nat: nobody is led to a removed endpoint again while the culprit is looked
// for, and the culprit keeps its rules of nat, without the refused ones of filter.
func TestRefusedAfterNAT(t *testing.T) {
	for _, layout := range []Layout{Classic, Tree} {
		t.Run(string(layout), func(t *testing.T) {
			const removed, added, refused = "10.128.0.1:8080", "10.128.0.2:8080", `not accepted by KUBE-FW-`
			p, m := newTestPlan(), NewModel(corev1.IPv4Protocol)
			b, err := New(Options{
				Options: backend.Options{
					Settings: func() (backend.Settings, error) { return p.rules.Settings(), nil },
					Clock:    clock.RealClock{}, Log: func(string, ...any) {},
				},
				Tables: m, Layout: layout, Variant: Legacy,
			})
			if err != nil {
				t.Fatal(err)
			}
			p.rules = b.rules
			sync := func(full bool) {
				t.Helper()
				changes := p.tracker.Take()
				b.Update(p.plan.Update(changes.Services))
				p.tracker.Commit(changes)
				if _, err := b.Sync(t.Context(), backend.Request{Full: full, Ports: p.plan.Ports()}); err != nil {
					t.Fatal(err)
				}
			}
			nat := func() string { return m.text(t, NAT) }
			for i := range 8 {
				p.set(service(i, i%3), endpoints(i, 1))
			}
			p.set(nil, endpoints(2)) // a load balancer's, which will have endpoints
			sync(true)

			taken, refusals := false, 0
			m.Committed = func() error {
				now := nat()
				taken = taken || strings.Contains(now, added)
				if taken && strings.Contains(now, removed) {
					t.Error("packets are led to a removed endpoint again")
				}
				return nil
			}
			m.Fail = func(payload *Payload) error {
				text := string(payload.Text())
				at := strings.Index(text, "svc-2 traffic "+refused)
				if at < 0 {
					return nil
				}
				refusals++
				before := strings.LastIndex(text[:at], "*"+string(Filter)+"\n")
				if _, err := m.apply(strings.NewReader(text[:before])); err != nil {
					t.Error(err)
				}
				line := 1 + strings.Count(text[:at], "\n") + strings.Count(text[at:at+strings.Index(text[at:], "COMMIT\n")], "\n")
				return &RestoreError{Tool: "model", ExitCode: 1, Line: line, Owner: payload.OwnerOf(line), Err: errors.New("refused")}
			}
			p.set(nil, endpoints(0, 2))
			p.set(nil, endpoints(2, 1))
			sync(false)
			if !taken || refusals == 0 || len(b.refusals) != 1 || b.refusals[portName("ns", "svc-2", "", corev1.ProtocolTCP)] == nil {
				t.Fatalf("nat taken: %v; %d payloads refused; Service ports refused: %v", taken, refusals, b.refusals)
			}
			if now := nat(); !strings.Contains(now, added) || !strings.Contains(now, "10.128.2.1:8080") {
				t.Errorf("nat lacks what it took:\n%s", now)
			}
			left := nat()
			sync(false)
			if now := nat(); now != left {
				t.Errorf("nat changes by itself:\n%s\nit was\n%s", now, left)
			}

			// Whatever was left over meanwhile is gone once all is taken.
			m.Fail = nil
			sync(true)
			fresh := NewModel(corev1.IPv4Protocol)
			b.opts.Tables, b.tables = fresh, fresh
			m.Committed = nil
			sync(true)
			for _, table := range []Table{NAT, Filter} {
				if now, want := m.text(t, table), fresh.text(t, table); now != want {
					t.Errorf("%s is\n%s\na fresh start has\n%s", table, now, want)
				}
			}
		})
	}
}

// text is a table as iptables-save prints it.
func (m *Model) text(t *testing.T, table Table) string {
	t.Helper()
	var saved bytes.Buffer
	if err := m.Save(&saved); err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(saved.String(), "*"+string(table)+"\n")
	text, _, _ = strings.Cut(text, "COMMIT\n")
	return text
}
