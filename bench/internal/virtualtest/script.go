package virtualtest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"synclab/sim"
)

// Kind is the kind of an Action.
type Kind string

// The kinds. All kinds except changes and checks are faults, which calm clears.
const (
	// change is one change of the cluster.
	change Kind = "change"
	// calm clears all faults, waits, and checks everything. look checks what must hold at any time.
	calm, look Kind = "calm", "look"

	// restores: the next N restores end in the way that Pick selects.
	restores Kind = "restores fail"
	// lock: another process holds the xtables lock for N seconds.
	lock Kind = "lock taken"
	// refuse: the rules of one in N Service ports are rejected; with an even Pick, the error names no line.
	refuse Kind = "rules refused"
	// unreadable: the next N reads of chains, rules and jumps fail.
	unreadable Kind = "reads fail"
	// externalWrite is the external write that Pick selects. The other two happen during a sync: between its read and
	// its write, or between its write and its reading of the fingerprint.
	externalWrite       Kind = "external write"
	externalWriteBefore Kind = "external write before the next restore"
	externalWriteAfter  Kind = "external write after the next restore"
	// flowsFail: flows cannot be read for N seconds.
	flowsFail Kind = "flows fail"
	// restart: the proxier is killed at any point of its work, and a new one starts N seconds later.
	restart Kind = "restart"
	// address: the node gets other addresses.
	address Kind = "addresses"
	// watches are disturbed for N seconds, in the way that Pick selects.
	watches Kind = "watches"
	// talks: N clients send to UDP Services.
	talks Kind = "clients"
)

// Action is one line of a script.
type Action struct {
	After time.Duration // the previous Action
	Kind  Kind
	// Change is set for kind change.
	Change sim.Change
	// Family is the index of the fault's family.
	Family int
	// N and Pick depend on the kind. Pick selects from what exists when the Action runs.
	N    int
	Pick uint64
}

// Fault reports whether an Action is a fault.
func (a Action) Fault() bool {
	switch a.Kind {
	case change, calm, look, talks:
		return false
	}
	return true
}

// String formats the Action as a line of a trace.
func (a Action) String() string {
	switch a.Kind {
	case change:
		o, err := meta.Accessor(a.Change.Object)
		if err != nil {
			return fmt.Sprintf("%s %T", a.Change.Op, a.Change.Object)
		}
		return fmt.Sprintf("%s %T %s/%s", a.Change.Op, a.Change.Object, o.GetNamespace(), o.GetName())
	case calm, look:
		return string(a.Kind)
	}
	return fmt.Sprintf("%s, family %d, n %d, pick %d", a.Kind, a.Family, a.N, a.Pick)
}

// phase is a phase of a script: its duration, and the rates of changes, faults and looks.
type phase struct {
	least, most time.Duration
	changes     float64 // a second
	faults      time.Duration
	looks       time.Duration
}

var phases = []phase{
	{2 * time.Minute, 8 * time.Minute, 2.5, 15 * time.Second, time.Minute},
	{2 * time.Minute, 8 * time.Minute, 2.5, time.Minute, time.Minute},
	{5 * time.Minute, 15 * time.Minute, 1, time.Minute, 2 * time.Minute},
	{5 * time.Minute, 20 * time.Minute, 0.5, 0, 2 * time.Minute},
	{20 * time.Minute, time.Hour, 0.05, 5 * time.Minute, 10 * time.Minute},
	{70 * time.Minute, 150 * time.Minute, 0, 20 * time.Minute, 30 * time.Minute},
	{70 * time.Minute, 130 * time.Minute, 0, 0, 40 * time.Minute},
}

// shares are the frequencies of the phases. The last phases are rare but take most of the virtual time.
var shares = []int{8, 4, 5, 5, 4, 1, 1}

// script generates the Actions of a Setting, phase by phase.
type script struct {
	setting Setting
	rng     *rand.Rand
	source  source
	left    time.Duration
	queue   []Action
	ended   bool
}

func newScript(s Setting, length time.Duration) (*script, error) {
	source, err := newSource(s)
	if err != nil {
		return nil, err
	}
	return &script{setting: s, rng: rand.New(rand.NewPCG(s.Seed, 0xac7)), source: source, left: length}, nil
}

// next returns the next Action; false at the end.
func (s *script) next() (Action, bool, error) {
	for len(s.queue) == 0 {
		switch {
		case s.ended:
			return Action{}, false, nil
		case s.left <= 0:
			s.end()
		default:
			if err := s.phase(); err != nil {
				return Action{}, false, fmt.Errorf("seed %d: %w", s.setting.Seed, err)
			}
		}
	}
	a := s.queue[0]
	s.queue = s.queue[1:]
	return a, true, nil
}

// timed is an Action with its time since the start of the phase.
type timed struct {
	at time.Duration
	Action
}

func (s *script) phase() error {
	p := phases[s.weighted(shares)]
	length := min(p.least+time.Duration(s.rng.Int64N(int64(p.most-p.least))), s.left+time.Minute)
	s.left -= length
	var all []timed
	if p.changes > 0 {
		trace, err := s.source.changes(s.rng, length, p.changes)
		if err != nil {
			return err
		}
		for _, c := range trace {
			// No two Actions are at the same time, because their order would be undefined.
			all = append(all, timed{c.Due + time.Duration(s.rng.Int64N(int64(time.Millisecond))), Action{Kind: change, Change: c}})
		}
	}
	if p.faults > 0 {
		s.poisson(length, p.faults, func(at time.Duration) { all = append(all, timed{at, s.fault()}) })
	}
	s.poisson(length, p.looks, func(at time.Duration) { all = append(all, timed{at, Action{Kind: look, Pick: s.rng.Uint64()}}) })
	s.poisson(length, 2*time.Minute, func(at time.Duration) {
		all = append(all, timed{at, Action{Kind: talks, N: 1 + s.rng.IntN(10), Pick: s.rng.Uint64(), Family: s.rng.IntN(2)}})
	})
	all = append(all, timed{length, Action{Kind: calm, Pick: s.rng.Uint64()}})
	s.enqueue(all)
	return nil
}

func (s *script) poisson(length, mean time.Duration, f func(at time.Duration)) {
	for at := s.exp(mean); at < length; at += s.exp(mean) {
		f(at)
	}
}

func (s *script) exp(mean time.Duration) time.Duration {
	return time.Duration(s.rng.ExpFloat64() * float64(mean))
}

func (s *script) weighted(shares []int) int {
	sum := 0
	for _, n := range shares {
		sum += n
	}
	draw := s.rng.IntN(sum)
	for i, n := range shares {
		if draw -= n; draw < 0 {
			return i
		}
	}
	panic("shares add up to 0")
}

var faultKinds = []Kind{
	restores, lock, refuse, unreadable, externalWrite, externalWriteBefore, externalWriteAfter, flowsFail, restart, address, watches,
}

var faultShares = []int{8, 3, 3, 2, 8, 3, 2, 2, 4, 1, 6}

func (s *script) fault() Action {
	a := Action{Kind: faultKinds[s.weighted(faultShares)], Family: s.rng.IntN(2), Pick: s.rng.Uint64()}
	if a.Kind == watches && !s.setting.Watches {
		a.Kind = externalWrite
	}
	switch a.Kind {
	case restores:
		a.N = []int{1, 1, 1, 2, 3, 8}[s.rng.IntN(6)]
	case lock, flowsFail:
		a.N = []int{1, 3, 6, 6, 40, 300}[s.rng.IntN(6)]
	case refuse:
		a.N = 2 + s.rng.IntN(20)
	case watches:
		a.N = []int{1, 3, 10, 40}[s.rng.IntN(4)]
	case unreadable:
		a.N = 1 + s.rng.IntN(4)
	case restart:
		a.N = []int{0, 1, 5, 60}[s.rng.IntN(4)]
	}
	return a
}

// end deletes all objects, and checks that nothing remains.
func (s *script) end() {
	s.ended = true
	var all []timed
	at := time.Second
	for _, c := range s.source.deletions() {
		all = append(all, timed{at, Action{Kind: change, Change: c}})
		at += time.Millisecond + time.Duration(s.rng.Int64N(int64(100*time.Millisecond)))
	}
	s.enqueue(append(all, timed{at + time.Second, Action{Kind: calm}}))
}
