package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// recorded has the payloads of one run of a stager.
type recorded struct {
	payloads []*Payload
	live     []bool
}

// stage writes the difference through a stager. fail, when set, is called before each payload.
func (p *testPlan) stage(pace *pace, tables Tables, fail func(n int) error) (*recorded, error) {
	p.replan()
	d := p.rules.difference(p.plan.Ports(), 0)
	d.tables = tables
	r := &recorded{}
	s := &stager{difference: d, incremental: true, pace: pace}
	s.restore = func(payload *Payload, live bool) error {
		r.payloads, r.live = append(r.payloads, payload), append(r.live, live)
		err := error(nil)
		if fail != nil {
			err = fail(len(r.payloads))
		}
		if err == nil {
			_, err = tables.Restore(context.TODO(), payload)
		}
		if err != nil {
			d.failed(payload, live, err)
			return err
		}
		d.took(payload, live)
		return nil
	}
	return r, s.run()
}

// started returns a plan on a model that has the base chains.
func started(t *testing.T, services int) (*testPlan, *Model) {
	t.Helper()
	p, m := newTestPlan(), NewModel("IPv4")
	if err := m.EnsureJumps(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for i := range services {
		p.set(service(i, i%3), endpoints(i, 1, 2, 3))
	}
	p.replan()
	p.forget(t, m)
	return p, m
}

func (p *testPlan) forget(t *testing.T, m *Model) {
	existing := map[Table][]string{}
	for _, table := range []Table{NAT, Filter} {
		existing[table], _ = m.Chains(table)
	}
	p.rules.Forget(existing, nil)
}

// Batches keep to their size and are written from the lowest level up. They contain nothing that packets reach. The
// switch is one payload, and the last.
func TestBatches(t *testing.T) {
	const size = 12
	p, m := started(t, 12)
	r, err := p.stage(newPace(size, 0), m, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.payloads) < 6 {
		t.Fatalf("%d payloads: they were not divided", len(r.payloads))
	}
	level := int32(0)
	for i, payload := range r.payloads {
		if last := i == len(r.payloads)-1; r.live[i] != last {
			t.Errorf("payload %d of %d: packets reach it: %v", i+1, len(r.payloads), r.live[i])
		}
		if r.live[i] {
			continue
		}
		names := 0
		for _, s := range payload.steps {
			lowest := slices.MinFunc(s.write, func(a, b chainText) int { return int(a.level - b.level) }).level
			if lowest < level {
				t.Errorf("payload %d goes down from level %d to %d", i+1, level, lowest)
			}
			level = lowest
			for j := range s.write {
				names += s.write[j].names()
			}
		}
		if names > size && len(payload.steps[0].write) > 1 {
			t.Errorf("payload %d has %d names, want %d at most", i+1, names, size)
		}
	}
}

// The bytes of an ordinary user's restores are limited.
func TestSendLimit(t *testing.T) {
	const limit = 20_000
	p, m := started(t, 12)
	r, err := p.stage(newPace(0, limit), m, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, payload := range r.payloads {
		bytes := 0
		for _, s := range payload.steps {
			_, b := group(s.write).size()
			bytes += b
		}
		if !r.live[i] && bytes > limit {
			t.Errorf("payload %d may send %d bytes", i+1, bytes)
		}
	}
	if len(r.payloads) < 3 {
		t.Errorf("%d payloads", len(r.payloads))
	}
}

// A difference that fits into one batch is one payload, which has each table once and deletes chains too.
func TestSmallIsOnePayload(t *testing.T) {
	p, m := started(t, 3)
	for n := range 3 {
		r, err := p.stage(newPace(1000, 0), m, nil)
		if err != nil || len(r.payloads) != 1 {
			t.Fatalf("sync %d: %d payloads, %v", n, len(r.payloads), err)
		}
		text := string(r.payloads[0].Text())
		if n == 1 && (strings.Count(text, "*nat") != 1 || strings.Contains(text, "*filter") || !strings.Contains(text, "-X KUBE-SEP-")) {
			t.Errorf("a changed endpoint:\n%s", text)
		}
		// Service 0 gets other endpoints, then loses them; Service 1 meanwhile has none and gets some.
		p.set(nil, endpoints(0, 4+n))
	}
	if r, err := p.stage(newPace(1000, 0), m, nil); err != nil || len(r.payloads) != 1 {
		t.Errorf("%d payloads, %v", len(r.payloads), err)
	}
	if r, err := p.stage(newPace(1000, 0), m, nil); err != nil || len(r.payloads) != 0 {
		t.Errorf("nothing to do: %d payloads, %v", len(r.payloads), err)
	}
}

// The order of filter and nat: filter first where endpoints are removed, nat first where they are added, filter before
// and after nat where both happens.
func TestOrderOfTables(t *testing.T) {
	p, m := started(t, 4)
	p.set(nil, endpoints(0))
	sync := func() string {
		r, err := p.stage(newPace(1000, 0), m, nil)
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		for _, payload := range r.payloads {
			for _, s := range payload.steps {
				order = append(order, string(s.table))
			}
		}
		return strings.Join(order, " ")
	}
	sync()
	for _, step := range []struct {
		what string
		do   func()
		want string
	}{
		{"endpoints go", func() { p.set(nil, endpoints(1)) }, "filter nat"},
		{"endpoints come", func() { p.set(nil, endpoints(1, 1)) }, "nat filter"},
		{"both", func() { p.set(nil, endpoints(1)); p.set(nil, endpoints(0, 1)) }, "filter nat filter"},
		{"others change", func() { p.set(nil, endpoints(2, 7)) }, "nat"},
		{"a Service without endpoints", func() { p.set(service(9, 0), nil) }, "filter"},
		{"nothing", func() {}, ""},
	} {
		if step.do(); sync() != step.want {
			t.Errorf("%s: not in the order %s", step.what, step.want)
		}
	}
}

// A refused line loses what is behind it, but not what was committed before. After a killed restore, the content of its
// chains is unknown.
func TestFailedBatches(t *testing.T) {
	for _, refused := range []bool{true, false} {
		t.Run(fmt.Sprintf("refused=%v", refused), func(t *testing.T) {
			p, m := started(t, 12)
			first, err := p.stage(newPace(12, 0), m, func(n int) error {
				switch {
				case n < 3:
					return nil
				case refused:
					return &RestoreError{ExitCode: 1, Line: 2, Err: errors.New("refused")}
				}
				return errors.New("killed")
			})
			if err == nil || len(first.payloads) != 3 || !p.rules.Dirty() {
				t.Fatalf("%d payloads, %v", len(first.payloads), err)
			}
			again, err := p.stage(newPace(12, 0), m, nil)
			if err != nil {
				t.Fatal(err)
			}
			written := map[string]bool{}
			for _, payload := range again.payloads {
				for _, s := range payload.steps {
					for _, c := range s.write {
						written[c.name] = true
					}
				}
			}
			for i, payload := range first.payloads {
				for _, c := range payload.steps[0].write {
					if written[c.name] != (i == 2) {
						t.Errorf("chain %s of payload %d is written again: %v", c.name, i+1, written[c.name])
					}
				}
			}
			if p.rules.Dirty() {
				t.Error("dirty after all was taken")
			}
		})
	}
}

// A failure never makes a table less stale, and a sync that finishes makes both current.
func TestStaleness(t *testing.T) {
	p, m := started(t, 12)
	killed := func(int) error { return errors.New("killed") }
	stage := func(batch int, fail func(int) error) {
		if _, err := p.stage(newPace(batch, 0), m, fail); (err != nil) != (fail != nil) {
			t.Fatal(err)
		}
	}
	changed := p.rules.Settings()
	changed.MasqueradeAll = !changed.MasqueradeAll
	for _, c := range []struct {
		what        string
		do          func()
		nat, filter staleness
	}{
		{"forgotten", func() { p.forget(t, m) }, unread, unread},
		{"forgotten, and nat had no jumps", func() { p.rules.Forget(nil, map[Table]bool{NAT: true}) }, void, unread},
		{"a batch of fresh chains was killed", func() { stage(12, killed) }, void, unread},
		{"the switch was killed", func() { stage(0, killed) }, unread, unread},
		{"finished", func() { stage(0, nil) }, current, current},
		{"the same settings", func() { p.rules.Rerender(p.rules.Settings(), p.plan.Ports()) }, current, current},
		{"other settings", func() { p.rules.Rerender(changed, p.plan.Ports()) }, behind, behind},
		{"the switch was killed again", func() { stage(0, killed) }, unread, unread},
		{"the first settings", func() { changed.MasqueradeAll = !changed.MasqueradeAll; p.rules.Rerender(changed, p.plan.Ports()) }, unread, unread},
		{"finished again", func() { stage(0, nil) }, current, current},
	} {
		c.do()
		if nat, filter := p.rules.known[NAT].staleness, p.rules.known[Filter].staleness; nat != c.nat || filter != c.filter {
			t.Errorf("%s: nat %d, filter %d, want %d, %d", c.what, nat, filter, c.nat, c.filter)
		}
	}
}

// Batches grow while names get cheaper, turn round when they do not, and stay within bounds.
func TestPace(t *testing.T) {
	p := newPace(0, 0)
	if p.batch(0) != fewestNames || newPace(7, 0).batch(1_000_000) != 7 {
		t.Errorf("batches of %d and %d", p.batch(0), newPace(7, 0).batch(1_000_000))
	}
	const chains = 100_000
	cost := func(names int) time.Duration { // a + b n²: the best n is the root of a/b
		return 30*time.Millisecond + time.Duration(names)*time.Duration(names)*5*time.Nanosecond
	}
	const best = 2449
	for range 100 {
		names := p.batch(chains)
		p.wall = cost(names)
		p.took(names)
	}
	if got := p.batch(chains); got < best/2 || got > 2*best {
		t.Errorf("after 100 batches one has %d names; the best is %d", got, best)
	}
}

// Rendering on two processors gives the same full sync as rendering on one.
func TestRenderedByHalves(t *testing.T) {
	p := newTestPlan()
	for i := range 250 {
		p.set(service(i, i%3), endpoints(i, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10))
	}
	p.replan()
	d := p.rules.difference(p.plan.Ports(), 0)
	var halves []chainText
	for _, c := range d.write[NAT] {
		if c.port != nil {
			halves = append(halves, c)
		}
	}
	if len(halves) < manyChains || !slices.IsSortedFunc(d.write[NAT], func(a, b chainText) int { return strings.Compare(a.name, b.name) }) {
		t.Fatalf("%d chains, sorted or not; want %d at least", len(halves), manyChains)
	}
	same := func(a, b chainText) bool {
		return a.name == b.name && string(a.text) == string(b.text) && a.port == b.port
	}
	if !slices.EqualFunc(halves, d.render(d.covered), same) {
		t.Error("not the same chains")
	}
}
