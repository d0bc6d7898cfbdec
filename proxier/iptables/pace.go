package iptables

import (
	"math"
	"time"
)

// pace decides how much one restore of several takes, by what they turn out to cost.
//
// A restore through iptables-nft costs some µs for each chain that the table holds already, since the kernel walks all of
// them at each commit; and it costs the square of the names in it, of chains and of those they jump to, since the tool
// keeps them in a sorted list that it searches from its beginning. So what is best grows with the root of what is there.
type pace struct {
	// fixed is the number of names in a batch; 0: as measured.
	fixed int
	// sendLimit is how many bytes of netlink messages one restore may send; 0: any number.
	sendLimit int

	factor float64 // names a batch, by the root of the chains that are there
	step   float64 // the factor's change from batch to batch
	cost   float64 // of the last batch: seconds a name
	wall   time.Duration
}

const (
	// fewestNames in a batch: below, starting the tool is most of the cost.
	fewestNames = 1000
	// The factor's beginning and its bounds. Measured: with a = 0.27 µs a chain and b = 5 ns a name squared, the best
	// batch is the root of a/b times that of the chains.
	firstFactor, leastFactor, mostFactor = 7, 2, 40
	// bytesPerChain and bytesPerRule are upper bounds of what the tool sends for each; a chain that goes is made,
	// emptied and deleted. A rule with a comment, chance, port and address takes some 750, one with recent instead of chance 980.
	bytesPerChain, bytesPerRule, bytesPerGone = 160, 1000, 3 * 160
)

func newPace(fixed, sendLimit int) *pace {
	return &pace{fixed: fixed, sendLimit: sendLimit, factor: firstFactor, step: 1.2}
}

// batch is how many names the next restore may have in a table of so many chains.
func (p *pace) batch(chains int) int {
	if p.fixed > 0 {
		return p.fixed
	}
	return max(fewestNames, int(p.factor*math.Sqrt(float64(chains))))
}

// took takes note of a batch: as long as names get cheaper, batches go on growing or shrinking, else they turn round.
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

// sends says whether a restore may send so much.
func (p *pace) sends(bytes int) bool { return p.sendLimit == 0 || bytes <= p.sendLimit }

// names are what the tool looks up for a chain: itself and what its rules jump to.
func (t *chainText) names() int {
	if t.level == levelEndpoint {
		return 1
	}
	return 1 + int(t.rules)
}

// size of a group: names, and bytes of netlink messages at most.
func (g group) size() (names, bytes int) {
	for i := range g {
		names += g[i].names()
		bytes += bytesPerChain + int(g[i].rules)*bytesPerRule
	}
	return names, bytes
}
