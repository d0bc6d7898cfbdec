package simulator

import (
	"iter"
	"math"
	"math/bits"
	"time"
)

// Bins grow with their values: 64 for each doubling, so that none is wider than 1/64 of its lower edge and its middle
// is within 0.8 % of all its values. Below 64 ns there is one bin a nanosecond.
const (
	pageBits = 6
	pageSize = 1 << pageBits
	// pages is the number of pages for all values of an int64.
	pages = 64 - pageBits
	// allBins is the number of bins of a histogram.
	allBins = pages * pageSize
)

// binOf returns the bin of a duration, which must not be negative. Integers only: the same on every machine.
func binOf(d time.Duration) int {
	e := max(0, bits.Len64(uint64(d))-pageBits-1)
	return e<<pageBits + int(uint64(d)>>e)
}

// lowerEdge returns the shortest duration of a bin.
func lowerEdge(bin int) time.Duration {
	if bin < 2*pageSize {
		return time.Duration(bin)
	}
	e := bin>>pageBits - 1
	return time.Duration(pageSize+bin&(pageSize-1)) << e
}

// Histogram counts durations. Quantiles are within 1 % of the exact ones; Max is exact. The zero value is empty.
type Histogram struct {
	// Count is the number of durations.
	Count int64
	// Max is the longest duration.
	Max   time.Duration
	pages [pages]*[pageSize]int64
}

// Add counts a duration; a negative one counts as 0.
func (h *Histogram) Add(d time.Duration) {
	d = max(0, d)
	h.add(binOf(d), 1)
	h.Max = max(h.Max, d)
}

func (h *Histogram) add(bin int, count int64) {
	page := h.pages[bin>>pageBits]
	if page == nil {
		page = new([pageSize]int64)
		h.pages[bin>>pageBits] = page
	}
	page[bin&(pageSize-1)] += count
	h.Count += count
}

// Merge adds the counts of another Histogram.
func (h *Histogram) Merge(other *Histogram) {
	for i, page := range other.pages {
		if page == nil {
			continue
		}
		for j, count := range page {
			if count > 0 {
				h.add(i<<pageBits+j, count)
			}
		}
	}
	h.Max = max(h.Max, other.Max)
}

// Bin is one bin of a Histogram: From ≤ duration < To.
type Bin struct {
	From, To time.Duration
	Count    int64
}

// middle represents all durations in the bin.
func (b Bin) middle() time.Duration { return b.From + (b.To-b.From-1)/2 }

// Bins returns the bins that are not empty, shortest durations first.
func (h *Histogram) Bins() iter.Seq[Bin] {
	return func(yield func(Bin) bool) {
		for i, page := range h.pages {
			if page == nil {
				continue
			}
			for j, count := range page {
				bin := i<<pageBits + j
				if count > 0 && !yield(Bin{lowerEdge(bin), upperEdge(bin), count}) {
					return
				}
			}
		}
	}
}

func upperEdge(bin int) time.Duration {
	if bin+1 == allBins {
		return math.MaxInt64
	}
	return lowerEdge(bin + 1)
}

// Quantile returns the shortest duration that a share q of all durations does not exceed, by nearest rank; 0 for an
// empty Histogram. The longest duration is exact.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.Count == 0 {
		return 0
	}
	rank := min(h.Count, max(1, int64(math.Ceil(q*float64(h.Count)))))
	if rank == h.Count {
		return h.Max
	}
	for b := range h.Bins() {
		if rank -= b.Count; rank <= 0 {
			return min(b.middle(), h.Max)
		}
	}
	return h.Max
}

// Mean returns the mean, computed from the middles of the bins.
func (h *Histogram) Mean() time.Duration {
	if h.Count == 0 {
		return 0
	}
	sum := 0.0
	for b := range h.Bins() {
		sum += float64(b.middle()) * float64(b.Count)
	}
	return time.Duration(sum / float64(h.Count))
}

// Above returns the share of durations that are longer than limit, such as an SLO, up to the width of its bin.
func (h *Histogram) Above(limit time.Duration) float64 {
	if h.Count == 0 {
		return 0
	}
	var above int64
	for b := range h.Bins() {
		if b.From > limit {
			above += b.Count
		}
	}
	return float64(above) / float64(h.Count)
}
