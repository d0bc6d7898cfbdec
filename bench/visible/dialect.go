package visible

import (
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// The dialects by name.
const (
	IptablesLegacy = "iptables-legacy"
	IptablesNft    = "iptables-nft"
	Nftables       = "nftables"
	// SynclabNftables is the lab's own backend nftables.
	SynclabNftables = "synclab-nftables"
)

// Generation is a number that differs after a commit.
type Generation struct {
	// Dispatch moves with what a Look reads.
	Dispatch uint64
	// Rest moves with what else a subject writes.
	Rest uint64
}

// State is where a Service port's own rules lead: endpoints as Dialect.Endpoint names them, sorted, each once.
type State struct {
	Cluster, Local []string
	// Hidden are those of the two that cannot be seen, because other Services hold all addresses that would lead there.
	Hidden struct{ Cluster, Local bool }
}

// Installed is how much a subject's own rules are, of one family.
type Installed struct {
	Rules            map[string]int // by table
	Chains, Elements int            // Elements of sets and maps
}

// Dialect reads a subject's rules in the kernel. Its methods are called from one goroutine at a time, but for
// Installed. Sockets belong to the network namespace that it was made in.
type Dialect interface {
	// Generation is asked a thousand times a second.
	Generation() (Generation, error)
	// Misses says that a commit may leave the Generation as it was.
	Misses() bool
	// Look begins to read.
	Look() (Look, error)
	// Endpoint names an endpoint ("ip:port") of a port as a State has it.
	Endpoint(port tracker.ServicePortName, text string) string
	// Installed counts the subject's own rules, in the namespace of the calling thread.
	Installed(family corev1.IPFamily) (Installed, error)
	Close()
}

// Look reads ports of one generation, or of several, if commits come meanwhile.
type Look interface {
	// Port reads the rules of a port's own chains; empty when there are none.
	Port(family corev1.IPFamily, port tracker.ServicePortName) (State, error)
	// Dispatched says whether packets get to these chains. It is asked only where that decides.
	Dispatched(family corev1.IPFamily, port tracker.ServicePortName) (cluster, local bool, err error)
	// Unrecognised describes a rule for the port that this reader cannot read, and where it stands; empty: there is none. It is
	// asked only of ports that are late.
	Unrecognised(family corev1.IPFamily, port tracker.ServicePortName) (string, error)
	// Generation is the one that everything read so far belongs to, if it is what it was at the beginning.
	Generation() (Generation, error)
	Close()
}

// NewDialect opens one of the dialects by name; empty: whichever rules are found in the kernel first.
func NewDialect(name string, families []corev1.IPFamily) (Dialect, error) {
	switch name {
	case IptablesLegacy:
		return newLegacy(families)
	case IptablesNft:
		return newIptablesNft()
	case Nftables:
		return newNftables()
	case SynclabNftables:
		return newOwnNftables()
	case "":
		return newUnknown(families)
	}
	return nil, fmt.Errorf("dialect %q: want %s, %s, %s, %s, or none to find out", name, IptablesLegacy, IptablesNft, Nftables, SynclabNftables)
}

// placed is a dialect that has to be told where packets for ports come in, from any goroutine, as the plan has it.
type placed interface {
	// place takes what became of a port; nil: it is gone.
	place(family corev1.IPFamily, name tracker.ServicePortName, port *plan.ServicePort)
}

// found says whether a dialect's rules are there.
type found interface {
	Dialect
	found(family corev1.IPFamily) (bool, error)
}

// unknown is any of the dialects, until rules of one of them are found.
type unknown struct {
	families []corev1.IPFamily
	tried    []found
	last     Generation // of all that are tried
	chosen   atomic.Pointer[choice]
}

type choice struct{ found }

func newUnknown(families []corev1.IPFamily) (Dialect, error) {
	u := &unknown{families: families}
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
	return u, nil
}

// Generation looks around at each commit, until something is found.
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

func (u *unknown) Misses() bool {
	c := u.chosen.Load()
	return c != nil && c.Misses()
}

func (u *unknown) Look() (Look, error) {
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

// nothing is a look where no dialect's rules are.
type nothing struct{ unknown *unknown }

func (nothing) Port(corev1.IPFamily, tracker.ServicePortName) (State, error) { return State{}, nil }
func (nothing) Dispatched(corev1.IPFamily, tracker.ServicePortName) (cluster, local bool, err error) {
	return false, false, nil
}
func (nothing) Unrecognised(corev1.IPFamily, tracker.ServicePortName) (string, error) { return "", nil }
func (n nothing) Generation() (Generation, error)                                     { return n.unknown.last, nil }
func (nothing) Close()                                                                {}
