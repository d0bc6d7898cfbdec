package visible

import (
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// The names of the ruleset readers.
const (
	IptablesLegacy = "iptables-legacy"
	IptablesNft    = "iptables-nft"
	Nftables       = "nftables"
	// SynclabNftables reads Synclab's backend nftables.
	SynclabNftables = "synclab-nftables"
	// IPVS reads virtual and real servers.
	IPVS = "ipvs"
	// Cilium reads the BPF maps of Cilium's load balancer.
	Cilium = "cilium"
	// Userspace reads the rules and the endpoint log of Synclab's backend userspace. It needs Options.EndpointLog.
	Userspace = "userspace"
)

// Generation is a number that changes with commits.
type Generation struct {
	// Dispatch changes with the rules that a Snapshot reads.
	Dispatch uint64
	// Rest changes with the subject's other rules.
	Rest uint64
}

// State has the endpoints that a Service port's rules select. They are named by RulesetReader.Endpoint, sorted and unique.
type State struct {
	Cluster, Local []string
	// Hidden marks lists that cannot be seen, because other Services have all addresses that would select these
	// endpoints.
	Hidden struct{ Cluster, Local bool }
	// At is when packets showed the state, and Since when they last showed that it was not reached. Zero: rules were read.
	At, Since time.Time
	// Unseen: packets cannot show when this state was reached, because clients stay with their endpoints, or because no
	// endpoint of the cluster IP changed.
	Unseen bool
}

// Installed counts a subject's rules in one family.
type Installed struct {
	Rules            map[string]int // by table
	Chains, Elements int            // Elements of sets and maps
}

// RulesetReader reads a subject's rules in the kernel. Only one goroutine at a time may call its methods, except
// Installed. Sockets belong to the network namespace in which it was made.
type RulesetReader interface {
	// Generation is called a thousand times a second.
	Generation() (Generation, error)
	// Misses reports whether a commit may leave the Generation unchanged.
	Misses() bool
	// Blind is the shortest time between two reads without a change of the Generation in between.
	Blind() time.Duration
	// Snapshot starts a read.
	Look() (Snapshot, error)
	// Endpoint returns the name in a State of a port's endpoint ("ip:port").
	Endpoint(port tracker.ServicePortName, text string) string
	// Installed counts the subject's rules in the calling thread's namespace.
	Installed(family corev1.IPFamily) (Installed, error)
	Close()
}

// Snapshot reads ports of one generation, or of several if commits happen meanwhile.
type Snapshot interface {
	// Port reads the rules of a port's chains; the State is empty if there are none.
	Port(family corev1.IPFamily, port tracker.ServicePortName) (State, error)
	// Dispatched reports whether packets reach these chains. It is called only if the result matters.
	Dispatched(family corev1.IPFamily, port tracker.ServicePortName) (cluster, local bool, err error)
	// Unrecognised describes a rule for the port that this reader does not know, with its place; empty if there is
	// none. It is called only for late ports.
	Unrecognised(family corev1.IPFamily, port tracker.ServicePortName) (string, error)
	// Generation returns the generation of everything read so far, if it equals the generation at the start.
	Generation() (Generation, error)
	Close()
}

// NewRulesetReader opens a reader by name. An empty name selects the one whose rules are found in the kernel first.
func NewRulesetReader(name string, families []corev1.IPFamily) (RulesetReader, error) {
	switch name {
	case IptablesLegacy:
		return newLegacy(families)
	case IptablesNft:
		return newIptablesNft()
	case Nftables:
		return newNftables()
	case SynclabNftables:
		return newOwnNftables()
	case IPVS:
		return newIPVS()
	case Cilium:
		return newCilium(families)
	case "":
		return newUnknown(families, nil)
	}
	return nil, fmt.Errorf("reader %q: want %s, %s, %s, %s, %s, %s, or none to detect it", name, IptablesLegacy, IptablesNft, Nftables, SynclabNftables, IPVS, Cilium)
}

func (o *Options) newReader() (RulesetReader, error) {
	switch {
	case o.RulesetReader == Userspace:
		return newUserspace(o.Families, o.EndpointLog)
	case o.RulesetReader == "" && o.Packets != nil:
		last, err := newPackets(*o.Packets, o.Clock.Now)
		if err != nil {
			return nil, err
		}
		return newUnknown(o.Families, last)
	}
	return NewRulesetReader(o.RulesetReader, o.Families)
}

// placed is a ruleset reader that needs the frontends of ports. The caller passes them from the plan, from any goroutine.
type placed interface {
	// place sets the new state of a port; nil if the port was deleted.
	place(family corev1.IPFamily, name tracker.ServicePortName, port *plan.ServicePort)
}

// found is a ruleset reader that can report whether its rules exist.
type found interface {
	RulesetReader
	found(family corev1.IPFamily) (bool, error)
}

// unknown tries all ruleset readers until it finds the rules of one of them. If packets reach endpoints before that, no
// reader knows these rules: then packets alone show the state.
type unknown struct {
	families []corev1.IPFamily
	packets  *packets // nil: only rules are tried
	tried    []found
	last     Generation // of all tried ruleset readers together
	chosen   atomic.Pointer[choice]
}

type choice struct{ found }

func newUnknown(families []corev1.IPFamily, last *packets) (RulesetReader, error) {
	u := &unknown{families: families, packets: last}
	for _, open := range []func() (found, error){
		func() (found, error) { return newOwnNftables() },
		func() (found, error) { return newNftables() },
		func() (found, error) { return newIptablesNft() },
		func() (found, error) { return newLegacy(families) },
	} {
		d, err := open()
		if err != nil {
			u.Close()
			return nil, err
		}
		u.tried = append(u.tried, d)
	}
	if last != nil {
		u.tried = append(u.tried, last)
	}
	return u, nil
}

// Generation searches for rules at each commit, until it finds some.
func (u *unknown) Generation() (Generation, error) {
	if c := u.chosen.Load(); c != nil {
		return c.Generation()
	}
	var sum Generation
	for i, d := range u.tried {
		g, err := d.Generation()
		if err != nil {
			return Generation{}, err
		}
		sum.Dispatch = sum.Dispatch*31 + g.Dispatch + uint64(i)
		sum.Rest = sum.Rest*31 + g.Rest
	}
	if sum == u.last {
		return sum, nil
	}
	if err := u.choose(); err != nil {
		return Generation{}, err
	}
	u.last = sum
	if c := u.chosen.Load(); c != nil {
		return c.Generation()
	}
	return sum, nil
}

func (u *unknown) choose() error {
	for _, d := range u.tried {
		for _, family := range u.families {
			there, err := d.found(family)
			if err != nil {
				return err
			}
			if there {
				u.chosen.Store(&choice{d})
				if u.packets != nil && d != found(u.packets) {
					u.packets.stop()
				}
				return nil
			}
		}
	}
	return nil
}

func (u *unknown) place(family corev1.IPFamily, name tracker.ServicePortName, port *plan.ServicePort) {
	for _, d := range u.tried {
		if d, ok := d.(placed); ok {
			d.place(family, name, port)
		}
	}
}

func (u *unknown) recheck() {
	if u.packets != nil {
		u.packets.recheck()
	}
}

func (u *unknown) Misses() bool {
	c := u.chosen.Load()
	return c != nil && c.Misses()
}

func (u *unknown) Blind() time.Duration { return blindPeriod }

func (u *unknown) Look() (Snapshot, error) {
	if c := u.chosen.Load(); c != nil {
		return c.Look()
	}
	return nothing{u}, nil
}

func (u *unknown) Endpoint(port tracker.ServicePortName, text string) string {
	if c := u.chosen.Load(); c != nil {
		return c.Endpoint(port, text)
	}
	return text
}

func (u *unknown) Installed(family corev1.IPFamily) (Installed, error) {
	if c := u.chosen.Load(); c != nil {
		return c.Installed(family)
	}
	return Installed{}, nil
}

func (u *unknown) Close() {
	for _, d := range u.tried {
		d.Close()
	}
}

// nothing is a Snapshot before any reader's rules exist.
type nothing struct{ unknown *unknown }

func (nothing) Port(corev1.IPFamily, tracker.ServicePortName) (State, error) { return State{}, nil }
func (nothing) Dispatched(corev1.IPFamily, tracker.ServicePortName) (cluster, local bool, err error) {
	return false, false, nil
}
func (nothing) Unrecognised(corev1.IPFamily, tracker.ServicePortName) (string, error) { return "", nil }
func (n nothing) Generation() (Generation, error)                                     { return n.unknown.last, nil }
func (nothing) Close()                                                                {}
