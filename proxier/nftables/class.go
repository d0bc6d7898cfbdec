package nftables

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"synclab/proxier/tracker"
)

// kind is how the packets of a frontend are handled.
type kind uint8

const (
	// kindCluster and kindClusterLocal are cluster IPs, with all endpoints or those of the node.
	kindCluster kind = iota + 1
	kindClusterLocal
	// kindExternal and kindLocal are addresses of external traffic, by external traffic policy.
	kindExternal
	kindLocal
	// kindNodePort and kindNodePortLocal are the same for NodePorts, where the destination's address is no part of the
	// key.
	kindNodePort
	kindNodePortLocal
	// kindOwn is a frontend with a separate chain: several Services claim it, or only some sources may use it.
	kindOwn
)

var kindNames = [...]string{"", "cluster", "cluster-local", "external", "external-local", "nodeport", "nodeport-local", "frontend"}

func (k kind) nodePort() bool { return k == kindNodePort || k == kindNodePortLocal }

// policyLocal reports whether the kind has two lists of endpoints.
func (k kind) policyLocal() bool { return k == kindLocal || k == kindNodePortLocal }

// The bits of a Class, from the highest: kind, endpoints, endpoints of the node, affinity seconds, variant. In kindOwn,
// all but the kind are a hash of the frontend.
const (
	countBits   = 18
	localBits   = 16
	timeoutBits = 17
	variantBits = 10

	localShift = variantBits + timeoutBits
	countShift = localShift + localBits
	kindShift  = countShift + countBits

	mostCount    = 1<<countBits - 1
	mostLocal    = 1<<localBits - 1
	mostTimeout  = 1<<timeoutBits - 1
	mostVariants = 1 << variantBits
	// mostClaims of one frontend get separate variants, besides as many that packets may have read before.
	mostClaims = mostVariants / 2
)

// Class identifies the chain that handles the packets of a frontend. Frontends of ordinary Services with equally many
// endpoints share a class. It contains everything that the chain depends on, so the same class has the same chain in
// every ruleset of the same settings.
type Class uint64

func newClass(k kind, all, local, seconds int) Class {
	return Class(uint64(k)<<kindShift | uint64(all)<<countShift | uint64(local)<<localShift | uint64(seconds)<<variantBits)
}

func ownClass(key []byte) Class {
	sum := sha256.Sum256(key)
	return Class(uint64(kindOwn)<<kindShift | binary.BigEndian.Uint64(sum[:])>>3)
}

func (c Class) kind() kind { return kind(c >> kindShift) }

// own reports whether the frontend has a separate chain, on which the other numbers of the class say nothing.
func (c Class) own() bool { return c.kind() == kindOwn }

// Count returns the number of endpoints for all traffic of the class. With policy Local, they are for traffic from the
// node and its pods.
func (c Class) Count() int { return int(c>>countShift) & mostCount }

// local returns the number of endpoints on this node, where the class distinguishes them.
func (c Class) local() int { return int(c>>localShift) & mostLocal }

// seconds returns the affinity timeout; 0: none.
func (c Class) seconds() int { return int(c>>variantBits) & mostTimeout }

// variant distinguishes equal classes of one frontend that several Services claim: each refers to one of them.
func (c Class) variant() int { return int(c) & (mostVariants - 1) }

// base returns the class without its variant; 0 for a frontend's own class.
func (c Class) base() Class {
	if c.own() {
		return 0
	}
	return c &^ (mostVariants - 1)
}

// Chain returns the name of the chain.
func (c Class) Chain() string {
	if c.own() {
		return fmt.Sprintf("frontend-%016x", uint64(c)&(1<<kindShift-1))
	}
	name := fmt.Sprintf("%s-%d", kindNames[c.kind()], c.Count())
	if c.kind().policyLocal() {
		name += fmt.Sprintf("-%d", c.local())
	}
	if c.seconds() > 0 {
		name += fmt.Sprintf("-%ds", c.seconds())
	}
	if c.variant() > 0 {
		name += fmt.Sprintf("-v%d", c.variant())
	}
	return name
}

// classOfChain parses a shared class from the name of its chain.
func classOfChain(name string) (Class, bool) {
	for k := kindNodePortLocal; k >= kindCluster; k-- { // the longer name first
		rest, found := strings.CutPrefix(name, kindNames[k]+"-")
		if !found {
			continue
		}
		all, local, seconds, variant := 0, 0, 0, 0
		for i, part := range strings.Split(rest, "-") {
			var err error
			switch {
			case strings.HasPrefix(part, "v"):
				variant, err = strconv.Atoi(part[1:])
			case strings.HasSuffix(part, "s"):
				seconds, err = strconv.Atoi(strings.TrimSuffix(part, "s"))
			case i == 0:
				all, err = strconv.Atoi(part)
			default:
				local, err = strconv.Atoi(part)
			}
			if err != nil {
				return 0, false
			}
		}
		return newClass(k, all, local, seconds) | Class(variant), true
	}
	return 0, false
}

// ID identifies a Service port in keys. It is a hash of the name and so the same in every table: remembered clients
// survive a restart.
type ID uint64

func idOf(name tracker.ServicePortName) ID {
	sum := sha256.Sum256([]byte(name.String() + "/" + strings.ToLower(string(name.Protocol))))
	return ID(binary.BigEndian.Uint64(sum[:]))
}

// localSlots is the first slot of a Service port's endpoints on this node; those of all endpoints begin at 0.
const localSlots = 1 << 30

// slotRange is where a list of endpoints is: in a map, from a first slot.
type slotRange struct {
	in    set
	first uint32
	count int
}

func newSlotRange(first uint32, count int) slotRange {
	return slotRange{endpointsOf(count), first, count}
}

// slots returns where the endpoints of a class are, those of all nodes and those of this node. A list that the class
// does not use has a count of 0.
func (c Class) slots() (all, local slotRange) {
	switch k := c.kind(); {
	case k == kindClusterLocal:
		local = newSlotRange(localSlots, c.Count())
	case k.policyLocal():
		all, local = newSlotRange(0, c.Count()), newSlotRange(localSlots, c.local())
	default:
		all = newSlotRange(0, c.Count())
	}
	return all, local
}

// neighbours calls yield with classes that a Service port of this class may soon have: a few endpoints more or less.
func (c Class) neighbours(yield func(Class)) {
	const near = 8
	for n := max(1, c.Count()-near); n <= min(mostCount, c.Count()+near); n++ {
		if !c.kind().policyLocal() {
			yield(newClass(c.kind(), n, 0, c.seconds()))
			continue
		}
		for m := max(0, c.local()-1); m <= min(n, c.local()+1, mostLocal); m++ {
			yield(newClass(c.kind(), n, m, c.seconds()))
		}
	}
}
