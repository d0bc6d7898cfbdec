// Package search decides what to measure next in order to find the largest cluster that meets SLOs: which subject, at
// which size. It measures nothing: Add takes what a cell showed.
package search

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Outcome is what one repetition of a cell showed.
type Outcome int

// Outcomes.
const (
	Met      Outcome = iota + 1 // every SLO
	Violated                    // at least one
)

// Options are the options of a search.
type Options struct {
	Asked int // the first size of every subject, unless it has another
	Least int // smallest size
	Most  int // largest size
	// Precision is the ratio of the ends of a bracket that is narrow enough, such as 1.15.
	Precision float64
	// Agreeing is how many repetitions each end of a narrow bracket gets.
	Agreeing int
}

// Search is the state of a search.
type Search struct {
	Options
	lanes []*lane
}

// lane is what is known of one subject.
type lane struct {
	name  string
	first int
	cells map[int]*cell
	spent time.Duration
	ended bool // it cannot be measured
	most  int  // largest size that may be possible
	fails int
}

// cell is what is known of a subject at one size.
type cell struct {
	met, violated int
	took          time.Duration // the longest repetition
}

// Bracket is where a subject's limit is: Met meets every SLO, Violated does not.
type Bracket struct {
	// Met is the largest size of which every repetition met every SLO, as at all smaller sizes; 0: none. Violated is the
	// smallest size of which every repetition violated one, as at all larger sizes; 0: none.
	Met, Violated int
	// MetReps and ViolatedReps are the repetitions at these sizes.
	MetReps, ViolatedReps int
	// Unclear are the measured sizes between them: their repetitions disagree, or contradict other sizes.
	Unclear []int
}

// New returns a search without subjects.
func New(o Options) *Search { return &Search{Options: o} }

// Subject adds a subject. first is its first size, if not Asked; 0: Asked.
func (s *Search) Subject(name string, first int) {
	s.lanes = append(s.lanes, &lane{name: name, first: min(cmp.Or(first, s.Asked), s.Most), cells: map[int]*cell{}, most: s.Most})
}

func (s *Search) lane(name string) *lane {
	return s.lanes[slices.IndexFunc(s.lanes, func(l *lane) bool { return l.name == name })]
}

// Add adds one repetition of a cell, and how long it took; 0: unknown, as it was measured earlier.
func (s *Search) Add(name string, size int, outcome Outcome, took time.Duration) {
	l := s.lane(name)
	c := l.cells[size]
	if c == nil {
		c = &cell{}
		l.cells[size] = c
	}
	if outcome == Met {
		c.met++
	} else {
		c.violated++
	}
	c.took, l.spent = max(c.took, took), l.spent+took
}

// mostFails is how often a subject may fail before anything of it was measured: it cannot be.
const mostFails = 2

// Fail says that a subject could not be measured at a size. Smaller sizes follow. ended reports whether none does.
func (s *Search) Fail(name string, size int) (ended bool) {
	l := s.lane(name)
	l.fails++
	l.most = min(l.most, size-1)
	l.ended = l.ended || l.most < s.Least || len(l.cells) == 0 && l.fails >= mostFails
	return l.ended
}

// Bracket returns where the limit of a subject is, as far as it is known.
func (s *Search) Bracket(name string) Bracket { return s.lane(name).bracket() }

func (l *lane) sizes() []int {
	var out []int
	for size := range l.cells {
		out = append(out, size)
	}
	slices.Sort(out)
	return out
}

func (l *lane) bracket() (b Bracket) {
	sizes := l.sizes()
	for _, size := range sizes {
		c := l.cells[size]
		if c.violated > 0 {
			break
		}
		b.Met, b.MetReps = size, c.met
	}
	for _, size := range slices.Backward(sizes) {
		c := l.cells[size]
		if c.met > 0 {
			break
		}
		b.Violated, b.ViolatedReps = size, c.violated
	}
	for _, size := range sizes {
		if size > b.Met && (b.Violated == 0 || size < b.Violated) {
			b.Unclear = append(b.Unclear, size)
		}
	}
	return b
}

// step is a possible next cell of a subject, and how much it narrows the answer: the expected decrease of the logarithm
// of the bracket's ratio.
type step struct {
	size int
	gain float64
}

// Gains of steps that narrow no bracket. A first cell comes before all else, and a second size before a third. Without a
// bracket, the next cell halves or doubles the size. Another repetition of an end is worth as much as a step from 1.1 to
// 1.05, so that it comes when the bracket is narrow.
const (
	gainFirst  = 1e6
	gainRepeat = 0.05
)

// steps returns the possible next cells of a lane, the best first.
func (s *Search) steps(l *lane) []step {
	if l.ended {
		return nil
	}
	if len(l.cells) == 0 {
		first := l.first
		if l.fails > 0 {
			first = max(s.Least, min(l.first, l.most+1)/2)
		}
		return []step{{first, gainFirst}}
	}
	b := l.bracket()
	var out []step
	add := func(size int, gain float64) {
		if c := l.cells[size]; size > 0 && size <= l.most && (c == nil || c.met+c.violated < s.Agreeing) {
			out = append(out, step{size, gain})
		}
	}
	// narrow offers the middle of two sizes that differ by more than the precision.
	narrow := func(low, high int) {
		if low > 0 && float64(high) > s.Precision*float64(low) {
			add(between(low, high), math.Log(float64(high)/float64(low))/2)
		}
	}
	if l.cells[s.Asked] == nil && b.Met < s.Asked && (s.Asked < b.Violated || b.Violated == 0 && s.Asked <= 2*b.Met) { // the question itself
		add(s.Asked, math.Ln2)
	}
	switch {
	case len(b.Unclear) > 0: // more repetitions may show on which side they are; where they disagree, that is the answer
		for _, size := range b.Unclear {
			add(size, math.Ln2)
		}
		if len(out) == 0 {
			least, most := b.Unclear[0], b.Unclear[len(b.Unclear)-1]
			narrow(b.Met, least)
			narrow(most, b.Violated)
			if b.Violated == 0 { // beyond them, all is open
				add(min(2*most, s.Most, l.most), math.Ln2)
			}
			if b.Met == 0 {
				add(max(least/2, s.Least), math.Ln2)
			}
		}
	case b.Violated == 0 && l.most < s.Most: // a larger one failed
		narrow(b.Met, l.most+1)
	case b.Violated == 0 && b.Met == s.Most, b.Met == 0 && b.Violated == s.Least: // the ends of the search
	case b.Violated == 0:
		add(min(2*b.Met, s.Most), math.Ln2)
	case b.Met == 0:
		add(max(b.Violated/2, s.Least), math.Ln2)
	default:
		narrow(b.Met, b.Violated)
	}
	if b.MetReps <= b.ViolatedReps || b.Violated == 0 {
		add(b.Met, gainRepeat)
		add(b.Violated, gainRepeat)
	} else {
		add(b.Violated, gainRepeat)
		add(b.Met, gainRepeat)
	}
	return out
}

// between returns the size in the geometric middle, rounded to two digits; 0: there is none.
func between(low, high int) int {
	middle := math.Sqrt(float64(low) * float64(high))
	unit := math.Pow(10, max(0, math.Floor(math.Log10(middle))-1))
	if n := int(math.Round(middle/unit) * unit); n > low && n < high {
		return n
	}
	return 0
}

// Next returns the next cell, and how long it will take: a first and a second size of each subject, in their order, then
// what narrows the answer most for its time. ok is false if no cell fits into the time that is left, or none is needed.
func (s *Search) Next(left time.Duration) (name string, size int, expected time.Duration, ok bool) {
	best, spent := -1.0, time.Duration(0)
	for _, l := range s.lanes {
		for _, next := range s.steps(l) {
			takes := l.expect(next.size)
			if takes > left {
				continue
			}
			worth := next.gain / max(1, takes.Seconds())
			ordered := next.gain == gainFirst || len(l.cells) == 1 && l.cells[next.size] == nil
			if ordered {
				worth = gainFirst / float64(1+len(l.cells))
			}
			if worth > best || worth == best && !ordered && l.spent < spent {
				best, spent = worth, l.spent
				name, size, expected, ok = l.name, next.size, takes, true
			}
			break // a step that fits is better than the later ones
		}
	}
	return name, size, expected, ok
}

// Bounds of the power with which the time of a cell grows, and the power that is assumed from one cell. kube-proxy's
// nftables mode comes near 2.
const (
	leastPower, usualPower, mostPower = 0.3, 1.3, 2.5
)

// expect predicts the time of a cell: as long as before, else by the power law through the two nearest sizes. It is used
// for nothing but the order of cells.
func (l *lane) expect(size int) time.Duration {
	if c := l.cells[size]; c != nil && c.took > 0 {
		return c.took
	}
	var known []int
	for _, n := range l.sizes() {
		if l.cells[n].took > 0 {
			known = append(known, n)
		}
	}
	if len(known) == 0 {
		return 0
	}
	distance := func(n int) float64 { return math.Abs(math.Log(float64(n) / float64(size))) }
	slices.SortFunc(known, func(a, b int) int { return cmp.Compare(distance(a), distance(b)) })
	power := usualPower
	near := known[0]
	if len(known) > 1 {
		other := known[1]
		power = math.Log(l.cells[near].took.Seconds()/l.cells[other].took.Seconds()) / math.Log(float64(near)/float64(other))
		power = min(mostPower, max(leastPower, power))
	}
	return time.Duration(float64(l.cells[near].took) * math.Pow(float64(size)/float64(near), power))
}
