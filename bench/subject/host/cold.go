package host

import (
	"slices"
	"sync"
	"time"

	"synclab/bench/raw"
)

// coldStart records when the Services of the first state became visible.
type coldStart struct {
	began    time.Time // right before the start of the subject
	mu       sync.Mutex
	due      time.Time   // identifies the VisibleChanges of the first state
	visible  []time.Time // when each Service of a family became visible, at the latest
	lacked   []time.Time // when each was last known not to be visible
	recorded bool
	moved    bool // from another subject: metric move
	// byPackets: packets showed when Services became visible.
	byPackets bool
}

// methodOf marks times that packets showed.
func methodOf(byPackets bool) string {
	if byPackets {
		return raw.ByPackets
	}
	return ""
}

func (c *coldStart) seen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.recorded
}

// settledCold records the cold start once everything of the first state is visible.
func (r *Host) settledCold() {
	cold := &r.Harness.cold
	cold.mu.Lock()
	defer cold.mu.Unlock()
	if cold.recorded || len(cold.visible) == 0 {
		return
	}
	cold.recorded = true
	slices.SortFunc(cold.visible, time.Time.Compare)
	slices.SortFunc(cold.lacked, time.Time.Compare)
	if cold.moved {
		last := cold.visible[len(cold.visible)-1]
		r.RecordAs(raw.Record{At: last.Sub(r.Started).Seconds(), Kind: r.About.Name}, raw.Move, last.Sub(cold.began).Seconds())
		return
	}
	for _, share := range coldShares {
		// The k-th Service to become visible did so between the k-th of the earliest and the k-th of the latest moments.
		k := (len(cold.visible)*share+99)/100 - 1
		at, from := cold.visible[k], cold.lacked[k]
		if from.Before(cold.began) {
			from = cold.began
		}
		place := raw.Record{At: at.Sub(r.Started).Seconds(), Share: share, Uncertainty: at.Sub(from).Seconds(), Method: methodOf(cold.byPackets)}
		metric := raw.ColdStartShare
		if share == 100 {
			place.Share, metric = 0, raw.ColdStart
		}
		r.RecordAs(place, metric, at.Sub(cold.began).Seconds())
	}
}

// coldShares are the percentages of Services that a cold start is recorded for.
var coldShares = []int{1, 10, 25, 50, 75, 90, 99, 100}
