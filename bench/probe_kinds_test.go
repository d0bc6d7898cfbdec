package bench

import (
	"testing"

	"synclab/bench/probe"
	"synclab/bench/raw"
	"synclab/bench/subject"
)

// A probe of every kind of destination, by every subject, in both families. Each kind has its samples, as many packets
// before any rule, and a count of the crossed rules.
func TestTraversalOfKinds(t *testing.T) {
	const samples = 12
	tr := newTrial(t, "traversal", 100, "shape.families=[IPv4,IPv6]", "steps.2.probe.positions=3", "steps.2.probe.samples=12")
	tr.options.Scenario.Targets = nil // measure every subject at the one size
	tr.options.Scenario.Shape.Endpoints.Count = 1
	tr.mustExecute()
	for _, subject := range tr.options.Subjects {
		crossed := map[place]int{}
		for _, r := range tr.of(subject, raw.RulesEvaluated) {
			crossed[placeOf(r)] += int(r.Value)
		}
		sent, before := map[place]int{}, map[string]int{} // by place; by kind, in the empty ruleset
		for _, r := range tr.of(subject, raw.FirstPacket) {
			if r.Position != nil && *r.Position == 0 {
				before[r.Family+r.Target]++
				continue
			}
			sent[placeOf(r)]++
		}
		for _, family := range []string{"IPv4", "IPv6"} {
			for _, kind := range append([]string{""}, probe.AllKinds...) {
				n := samples
				if kind == "" {
					n *= 4 // three positions and a miss
				}
				if got := before[family+kind]; got != n {
					t.Errorf("%s, %s: %d packets of kind %q before any rule, want %d", subject, family, got, kind, n)
				}
				if got := sent[place{family, kind, 0}]; kind != "" && got != n {
					t.Errorf("%s, %s: %d packets of kind %q, want %d", subject, family, got, kind, n)
				}
			}
			checkCrossed(t, subject, family, crossed)
		}
		for at, n := range sent {
			if n != samples || crossed[at] == 0 {
				t.Errorf("%s, %+v: %d packets that cross %d rules, want %d that cross some", subject, at, n, crossed[at], samples)
			}
		}
		if len(sent) != 2*(4+len(probe.AllKinds)) {
			t.Errorf("%s: %d destinations, want 4 positions and %d kinds in 2 families", subject, len(sent), len(probe.AllKinds))
		}
	}
}

// place is the destination of a first packet.
type place struct {
	family, kind string
	position     int
}

func placeOf(r raw.Record) place {
	at := place{family: r.Family, kind: r.Target}
	if r.Position != nil {
		at.position = *r.Position
	}
	return at
}

// checkCrossed: in layout classic, each position adds a rule, and a late kind crosses more rules than the first Service.
// Layout tree and nftables do not depend on the position.
func checkCrossed(t *testing.T, name, family string, crossed map[place]int) {
	t.Helper()
	about, err := subject.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	first, last := 1<<30, 0
	for at := range crossed {
		if at.family == family && at.position > 0 {
			first, last = min(first, at.position), max(last, at.position)
		}
	}
	added := crossed[place{family, "", last}] - crossed[place{family, "", first}]
	miss := crossed[place{family, "", -1}]
	switch {
	case about.Classic():
		if added != last-first || miss < last {
			t.Errorf("%s, %s: the packet to position %d crosses %d rules more than that to %d, and a miss %d", name, family, last, added, first, miss)
		}
	case miss > 60 || added > 40:
		t.Errorf("%s, %s: position %d crosses %d rules more than %d, and a miss %d: that depends on how many there are", name, family, last, added, first, miss)
	}
	if crossed[place{family, probe.KindAffinityAgain, 0}] == crossed[place{family, probe.KindAffinityFirst, 0}] && !about.Nftables() {
		t.Errorf("%s, %s: a client with an affinity entry crosses as many rules as one without", name, family)
	}
}
