package iptables

import (
	"math"
	"time"
)

// pace decides how much one of several restores writes, by measured cost.
//
// A restore through iptables-nft costs some µs for each chain in the table, since the kernel walks all chains at each
// commit. It also costs the square of the names in the restore, chains and jump targets. The tool keeps these names in
// a sorted list that it searches from its beginning. So the best size grows with the square root of the table's chains.
type pace struct {
	// fixed is the number of names in a batch; 0: chosen by measured cost.
	fixed int
	// sendLimit is how many bytes of netlink messages one restore may send; 0: no limit.
	sendLimit int

	factor float64 // names a batch, divided by the square root of the table's chains
	step   float64 // the factor's change from batch to batch
	cost   float64 // the last batch's: seconds a name
	wall   time.Duration
}

const (
	// fewestNames in a batch: with fewer, starting the tool is most of the cost.
	fewestNames = 1000
	// The factor's first value and its bounds. Measured: a = 0.27 µs a chain and b = 5 ns a name squared. So the best
	// number of names is the square root of a/b times that of the chains.
	firstFactor, leastFactor, mostFactor = 7, 2, 40
	// bytesPerChain and bytesPerRule are upper bounds of what the tool sends. A chain to delete is made, emptied and
	// deleted. A rule with comment, probability, port and address takes some 750 bytes, one with recent in place of
	// probability 980.
	bytesPerChain, bytesPerRule, bytesPerGone = 160, 1000, 3 * 160
)

func newPace(fixed, sendLimit int) *pace {
	return &pace{fixed: fixed, sendLimit: sendLimit, factor: firstFactor, step: 1.2}
}

// batch returns how many names the next restore may have in a table of so many chains.
func (p *pace) batch(chains int) int {
	if p.fixed > 0 {
		return p.fixed
	}
	return max(fewestNames, int(p.factor*math.Sqrt(float64(chains))))
}

// took records a batch. As long as names get cheaper, batches go on growing or shrinking; then the direction turns.
func (p *pace) took(names int) {
	if p.fixed > 0 || p.wall == 0 || names == 0 {
		return
	}
	cost := p.wall.Seconds() / float64(names)
	if p.cost > 0 && cost > p.cost {
		p.step = 1 / p.step
	}
	p.cost = cost
	p.factor = min(max(p.factor*p.step, leastFactor), mostFactor)
}

// sends reports whether a restore may send so many bytes.
func (p *pace) sends(bytes int) bool { return p.sendLimit == 0 || bytes <= p.sendLimit }

// names counts the names that the tool looks up for a chain: its own and those of its jump targets.
func (t *chainText) names() int {
	if t.level == levelEndpoint {
		return 1
	}
	return 1 + int(t.rules)
}

// size returns the names of a group, and an upper bound of its bytes in netlink messages.
func (g group) size() (names, bytes int) {
	for i := range g {
		names += g[i].names()
		bytes += bytesPerChain + int(g[i].rules)*bytesPerRule
	}
	return names, bytes
}
