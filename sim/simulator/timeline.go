package simulator

import (
	"math"
	"slices"
	"sort"
	"time"
)

const (
	// mostEvents is how many events are loaded at once: what a node reads of them then stays in a core's cache.
	mostEvents = 1 << 15
	// leastBlock is the minimum length of the blocks in which pairs are counted, mostBlocks their maximum number.
	leastBlock, mostBlocks = 64, 512
	// scanBlocks: the events of intervals up to this many blocks are counted one by one.
	scanBlocks = 3
	never      = math.MaxInt32
)

// timeline is the part of the events that some node still needs: from the oldest that is not installed everywhere, up
// to known. All nodes share it. Looking up an interval costs almost nothing per event. See docs/design/simulator.md.
type timeline struct {
	source Source
	head   Event
	more   bool
	length time.Duration
	// known: all events due by then have been loaded.
	known time.Duration
	// dropped is how many events were dropped before the present ones.
	dropped int64

	due        []time.Duration
	prev, next []int32 // event of the same Service: -1 before the first one here, never after the last
	sum        []int64 // changes before each event, and of all
	last       []int64 // by Service: 1 + the number of its last event, counted from the very first; 0: none

	// grid[c] is the first event that is not due before base + c<<gridShift.
	grid      []int32
	gridShift int
	// pairs[a*rows+b] counts the pairs with the first event in block a or after, and the second before block b.
	pairs             []int32
	rows              int
	block, blockShift int
	base              time.Duration // due[0]
}

func newTimeline(s Source, length time.Duration) *timeline {
	tl := &timeline{source: s, length: length, sum: []int64{0}, known: -1}
	tl.pull()
	return tl
}

func (tl *timeline) pull() {
	tl.head, tl.more = tl.source.Next()
	tl.more = tl.more && tl.head.Due < tl.length
}

// load loads the events due by a time, or fewer if these are many. Events due together are loaded together.
func (tl *timeline) load(to time.Duration) {
	for n := 0; tl.more && tl.head.Due <= to; n++ {
		if n >= mostEvents && tl.head.Due > tl.due[len(tl.due)-1] {
			to = tl.due[len(tl.due)-1]
			break
		}
		tl.add(tl.head)
		tl.pull()
	}
	tl.known = to
	tl.index()
}

func (tl *timeline) add(e Event) {
	i := len(tl.due)
	if missing := int(e.Service) + 1 - len(tl.last); missing > 0 {
		tl.last = append(tl.last, make([]int64, missing)...)
	}
	prev := int32(-1)
	if last := tl.last[e.Service] - 1 - tl.dropped; last >= 0 {
		prev = int32(last)
		tl.next[prev] = int32(i)
	}
	tl.last[e.Service] = tl.dropped + int64(i) + 1
	tl.due = append(tl.due, e.Due)
	tl.prev = append(tl.prev, prev)
	tl.next = append(tl.next, never)
	tl.sum = append(tl.sum, tl.sum[i]+int64(e.Weight))
}

// drop drops the first n events: all nodes have installed them.
func (tl *timeline) drop(n int) {
	if n == 0 {
		return
	}
	tl.due = slices.Delete(tl.due, 0, n)
	tl.prev = slices.Delete(tl.prev, 0, n)
	tl.next = slices.Delete(tl.next, 0, n)
	tl.sum = slices.Delete(tl.sum, 0, n)
	for i := range tl.prev {
		tl.prev[i] = max(-1, tl.prev[i]-int32(n))
		if tl.next[i] != never {
			tl.next[i] -= int32(n)
		}
	}
	tl.dropped += int64(n)
}

// index builds the lookup tables of the present events.
func (tl *timeline) index() {
	n := len(tl.due)
	tl.grid = tl.grid[:0]
	tl.pairs = tl.pairs[:0]
	if n == 0 {
		return
	}
	tl.base = tl.due[0]
	span := tl.due[n-1] - tl.base
	tl.gridShift = 0
	for span>>tl.gridShift > time.Duration(2*n) {
		tl.gridShift++
	}
	cells := int(span>>tl.gridShift) + 1
	tl.grid = slices.Grow(tl.grid, cells+1)[:cells+1]
	i := 0
	for c := range tl.grid {
		for i < n && tl.due[i]-tl.base < time.Duration(c)<<tl.gridShift {
			i++
		}
		tl.grid[c] = int32(i)
	}
	tl.grid[cells] = int32(n)
	tl.countPairs()
}

func (tl *timeline) countPairs() {
	n := len(tl.due)
	tl.blockShift = 6
	for tl.block = leastBlock; n/tl.block > mostBlocks; tl.block *= 2 {
		tl.blockShift++
	}
	if n <= scanBlocks*tl.block {
		return
	}
	// Blocks 0 to last, and one edge more.
	rows := n>>tl.blockShift + 2
	tl.rows = rows
	tl.pairs = slices.Grow(tl.pairs, rows*rows)[:rows*rows]
	clear(tl.pairs)
	for i, p := range tl.prev {
		if p >= 0 {
			tl.pairs[int(p)>>tl.blockShift*rows+i>>tl.blockShift+1]++
		}
	}
	for a := rows - 1; a >= 0; a-- {
		row := tl.pairs[a*rows : (a+1)*rows]
		for b := 1; b < rows; b++ {
			row[b] += row[b-1]
		}
		if a+1 < rows {
			for b, count := range tl.pairs[(a+1)*rows : (a+2)*rows] {
				row[b] += count
			}
		}
	}
}

// dueBy returns how many of the present events are due by a time.
func (tl *timeline) dueBy(t time.Duration) int {
	if len(tl.due) == 0 || t < tl.base {
		return 0
	}
	c := int((t - tl.base) >> tl.gridShift)
	if c >= len(tl.grid)-1 {
		return len(tl.due)
	}
	i, end := int(tl.grid[c]), int(tl.grid[c+1])
	if end-i > 16 {
		return i + sort.Search(end-i, func(k int) bool { return tl.due[i+k] > t })
	}
	for i < end && tl.due[i] <= t {
		i++
	}
	return i
}

// dueBefore returns how many of the present events are due before a time.
func (tl *timeline) dueBefore(t time.Duration) int { return tl.dueBy(t - 1) }

// changes returns the number of changes of the events a to b-1.
func (tl *timeline) changes(a, b int) int { return int(tl.sum[b] - tl.sum[a]) }

// services returns the number of different Services in the events a to b-1.
func (tl *timeline) services(a, b int) int {
	if b-a <= scanBlocks*tl.block || len(tl.pairs) == 0 {
		return firsts(tl.prev[a:b], int32(a))
	}
	// Events minus pairs: those within the blocks in between, and those with one event outside of them.
	from := (a + tl.block - 1) >> tl.blockShift
	to := b >> tl.blockShift
	inside := int(tl.pairs[from*tl.rows+to])
	edge := int32(to << tl.blockShift)
	for _, next := range tl.next[a : from<<tl.blockShift] {
		if next < edge {
			inside++
		}
	}
	rest := tl.prev[edge:b]
	return b - a - inside - (len(rest) - firsts(rest, int32(a)))
}

// firsts counts the events that are the first of their Service from a on.
func firsts(prev []int32, a int32) int {
	n := uint32(0)
	for _, p := range prev {
		n += uint32(p-a) >> 31 // p < a, without a branch
	}
	return int(n)
}
