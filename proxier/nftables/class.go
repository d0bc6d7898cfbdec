package nftables

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"synclab/proxier/tracker"
)

// kind is what becomes of the packets of a frontend.
type kind uint8

const (
	// kindCluster and kindClusterLocal are cluster IPs, with all endpoints or those of the node.
	kindCluster kind = iota + 1
	kindClusterLocal
	// kindExternal and kindLocal are what outside traffic uses, by external traffic policy.
	kindExternal
	kindLocal
	// kindNodePort and kindNodePortLocal are the same for NodePorts, where the destination's address says nothing.
	kindNodePort
	kindNodePortLocal
	// kindOwn is a frontend with a chain of its own: several Services claim it, or only some sources may use it.
	kindOwn
)

var kindNames = [...]string{"", "cluster", "cluster-local", "external", "external-local", "nodeport", "nodeport-local", "frontend"}

func (k kind) nodePort() bool { return k == kindNodePort || k == kindNodePortLocal }

// policyLocal kinds have two lists of endpoints.
func (k kind) policyLocal() bool { return k == kindLocal || k == kindNodePortLocal }

// The bits of a Class, from the highest: kind, endpoints, endpoints of the node, affinity seconds, variant. Of kindOwn,
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
	// mostClaims of one frontend have variants of their own, beside as many that packets were told of before.
	mostClaims = mostVariants / 2
)

// Class says which chain handles the packets of a frontend. Frontends of ordinary Services with equally many endpoints
// share theirs. It holds everything the chain depends on, so the same class is the same chain in every ruleset of the
// same settings.
type Class uint64

func newClass(k kind, all, local, seconds int) Class {
	return Class(uint64(k)<<kindShift | uint64(all)<<countShift | uint64(local)<<localShift | uint64(seconds)<<variantBits)
}

func ownClass(key []byte) Class {
	sum := sha256.Sum256(key)
	return Class(uint64(kindOwn)<<kindShift | binary.BigEndian.Uint64(sum[:])>>3)
}

func (c Class) kind() kind { return kind(c >> kindShift) }

// own: the frontend has a chain to itself, which does not show in the other numbers.
func (c Class) own() bool { return c.kind() == kindOwn }

// Count is the number of endpoints that take all traffic of the class, or all of policy Local's traffic from the node
// and its pods.
func (c Class) Count() int { return int(c>>countShift) & mostCount }

// local is the number of endpoints of this node, where the class tells these apart.
func (c Class) local() int { return int(c>>localShift) & mostLocal }

// seconds of affinity; 0: none.
func (c Class) seconds() int { return int(c>>variantBits) & mostTimeout }

// variant tells classes apart that are alike, where several Services claim one frontend: a class leads to one of them.
func (c Class) variant() int { return int(c) & (mostVariants - 1) }

// base is the class without its variant; 0 for a frontend's own.
func (c Class) base() Class {
	if c.own() {
		return 0
	}
	return c &^ (mostVariants - 1)
}

// Chain is the name of the chain.
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

// classOfChain reads a shared class back from the name of its chain.
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

// ID names a Service port in keys. It is a hash of the name: the same in every table, so that what clients are
// remembered by survives a restart.
type ID uint64

func idOf(name tracker.ServicePortName) ID {
	sum := sha256.Sum256([]byte(name.String() + "/" + strings.ToLower(string(name.Protocol))))
	return ID(binary.BigEndian.Uint64(sum[:]))
}

// localSlots is where the slots of a Service port's endpoints of this node begin; those of all begin at 0.
const localSlots = 1 << 30

// neighbours are the classes that a Service port of this class may soon have: a few endpoints more or less.
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
