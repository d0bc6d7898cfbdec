package bench

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"synclab/bench/subject"
	"synclab/proxier"
	"synclab/proxier/iptables"
	"synclab/scenarios"
)

// Limits and sizes of a calibration.
const (
	defaultBudget       = 5 * time.Minute
	largestServices     = 8000
	heldServices        = 10000 // largest cell of a hold-out
	holdOutFactor       = 5     // largest held-out cell / largest fitted cell
	fitShare            = 0.4   // of a subject's time, with HoldOut; the rest is for the held-out cells
	smallestCalibration = 10    // Services
	usualEndpoints      = 10
	// fewEndpoints is not 1: for a Service with one endpoint, kube-proxy's nftables mode writes no chain, and a full
	// sync costs a fraction. The cost model is for Services with several endpoints. It overestimates others.
	fewEndpoints         = 2
	manyEndpoints        = 50
	calibrationRounds    = 4 // of one cell, at most
	singleChanges        = 3 // per pass; each waits until the one before is visible
	calibrationPositions = 5 // of the probe: first to last
	calibrationPackets   = 200
)

// bursts are numbers of changes that come at once. Two single changes come before each burst, far enough apart that the
// first has a separate sync. The sync of the second change then includes the whole burst. A burst that arrives in the
// middle of a sync would measure that sync too.
var bursts = []int{8, 40, 150}

const (
	beforeBurst = 20 // single changes a second
	leanBurst   = 40 // the only burst of a lean pass
)

// burstWait is minSyncPeriod of a calibration: long enough for a burst to arrive, short enough not to delay settle
// steps.
const burstWait = 250 * time.Millisecond

// superlinear is the largest cell, in Services, of subjects whose full sync grows so fast that larger cells would take
// all the time.
const superlinear = 1000

// CalibrationCell is one cluster of a calibration. Endpoints is per Service; where Skewed, the mean of a Zipf
// distribution.
type CalibrationCell struct {
	Services, Endpoints int
	Skewed              bool
}

// Judgement is what the cost model expects of a cell.
type Judgement struct {
	// Full and Partial are the durations of one such sync: the median and the upper bound. 0: unknown.
	Full, Partial [2]time.Duration
	// Gain is how much a measurement of the cell reduces the uncertainty about the asked cluster.
	Gain float64
}

func (c CalibrationCell) String() string {
	if c.Skewed {
		return fmt.Sprintf("%d Services of %d endpoints in the mean (Zipf)", c.Services, c.Endpoints)
	}
	return fmt.Sprintf("%d Services of %d endpoints", c.Services, c.Endpoints)
}

func (c CalibrationCell) params() map[string]string {
	out := map[string]string{"shape.services": strconv.Itoa(c.Services), "shape.endpoints.count": strconv.Itoa(c.Endpoints)}
	if c.Skewed {
		out["shape.endpoints.distribution"] = "zipf"
	}
	return out
}

// bulk approximates the size that most costs are proportional to.
func (c CalibrationCell) bulk() float64 { return float64(c.Services) * (float64(c.Endpoints) + 2) }

// ladder returns the numbers of Services up to top, each twice the one before.
func ladder(top int) (sizes []int) {
	for size := top; size >= smallestCalibration && len(sizes) < 7; size /= 2 {
		sizes = append(sizes, size)
	}
	slices.Reverse(sizes)
	return sizes
}

// startCells returns the cells to measure before the cost model can choose: two sizes and three numbers of endpoints.
func startCells(top int) (out []CalibrationCell) {
	sizes := ladder(top)
	at := func(below int) int { return sizes[max(0, len(sizes)-1-below)] }
	second := at(2)
	if len(sizes) < 4 {
		second = at(0)
	}
	for _, c := range []CalibrationCell{{at(4), usualEndpoints, false}, {second, usualEndpoints, false}, {at(3), manyEndpoints, false}, {at(2), fewEndpoints, false}} {
		if !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

// heldCells returns the cells beyond the fit, which goes up to a fifth of top.
func heldCells(top int) []CalibrationCell {
	return []CalibrationCell{{top, usualEndpoints, false}, {top / 2, manyEndpoints, false}, {top, usualEndpoints, true}, {top, 5, false}}
}

// lane is one subject's calibration.
type lane struct {
	subject, name string
	top           int               // Services of its largest cell, without the held-out cells
	start, held   []CalibrationCell // remaining cells
	holding       bool
	reps          map[CalibrationCell]int
	spent         time.Duration
	took          map[CalibrationCell]time.Duration // duration of the last pass of each cell
	limit         float64                           // smallest bulk that exceeded a budget
	done          bool
}

func newLane(text string, about subject.Spec, o *CalibrateOptions) *lane {
	largest := o.MaxServices
	if about.Proxier == subject.KubeProxy && about.Backend == proxier.Iptables && about.Variant == iptables.Nft {
		largest = min(largest, superlinear)
	}
	l := &lane{subject: text, name: about.Name, top: largest, reps: map[CalibrationCell]int{}, took: map[CalibrationCell]time.Duration{}, limit: math.Inf(1)}
	if o.HoldOut {
		l.top = max(2*smallestCalibration, largest/holdOutFactor)
		l.held = heldCells(largest)
	}
	l.start = startCells(l.top)
	return l
}

// passed keeps the duration of a pass. If the pass exceeded its time, larger cells have no time either.
func (l *lane) passed(cell CalibrationCell, took time.Duration, exceeded bool) {
	l.spent += took
	l.took[cell] = took
	l.reps[cell]++
	if exceeded {
		l.limit = min(l.limit, cell.bulk())
	}
}

// candidates returns all cells that may come next: the ladder with three numbers of endpoints, and the asked cluster if
// it is no larger. Measured cells may come again. Skewed cells are only held out: the cost model is of even ones.
func (l *lane) candidates(asked CalibrationCell) (out []CalibrationCell) {
	add := func(c CalibrationCell) {
		if c.bulk() < l.limit && l.reps[c] < calibrationRounds && !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	if asked.Services > 0 && asked.Services <= l.top {
		add(asked)
	}
	for _, size := range ladder(l.top) {
		for _, c := range []CalibrationCell{{size, usualEndpoints, false}, {size, fewEndpoints, false}, {size, manyEndpoints, false}} {
			add(c)
		}
	}
	return out
}

// best returns the index of the candidate with the most gain for its time, among those that fit into share; -1: none.
// Time counts by its square root: of two cells, the larger one shows more of how costs grow.
func (l *lane) best(cells []CalibrationCell, judged []Judgement, share time.Duration) int {
	best, most := -1, 0.0
	for i, cell := range cells {
		expected := l.expect(cell, judged[i], true)
		if worth := judged[i].Gain / math.Sqrt(max(1, expected.Seconds())); expected <= share && worth > most {
			best, most = i, worth
		}
	}
	return best
}

// longPass limits the duration of a pass that measures everything. A longer pass is lean: no restart, and one burst.
const longPass = 12 * time.Second

func (l *lane) lean(c CalibrationCell) bool {
	return l.holding || l.reps[c] > 0 && l.took[c] > longPass || l.grown(c) > longPass
}

// expect returns the expected duration of a pass: what grown returns, or the expected duration of its syncs if that is
// longer.
func (l *lane) expect(c CalibrationCell, j Judgement, upper bool) time.Duration {
	which := 0
	if upper {
		which = 1
	}
	syncs := j.Full[which] + (singleChanges+3)*j.Partial[which]
	if took, ok := l.took[c]; ok {
		return took
	}
	known, took := l.nearest(c)
	if took == 0 {
		return syncs
	}
	if syncs == 0 {
		return l.grown(c)
	}
	// The rest of a pass: objects are made, delivered and waited for, and packets are sent.
	return time.Duration(float64(took)/2*math.Max(1, math.Sqrt(c.bulk()/known.bulk()))) + syncs
}

// grown extrapolates the duration of a pass from earlier passes, with more than linear growth.
func (l *lane) grown(c CalibrationCell) time.Duration {
	known, took := l.nearest(c)
	if took == 0 {
		return 0
	}
	return time.Duration(float64(took) * math.Pow(math.Max(1, c.bulk()/known.bulk()), 1.2))
}

// nearest returns the largest measured cell with no more bulk than c, else the smallest measured cell.
func (l *lane) nearest(c CalibrationCell) (known CalibrationCell, took time.Duration) {
	for cell, t := range l.took {
		switch {
		case took == 0, cell.bulk() <= c.bulk() && (cell.bulk() > known.bulk() || known.bulk() > c.bulk()),
			known.bulk() > c.bulk() && cell.bulk() < known.bulk():
			known, took = cell, t
		}
	}
	return known, took
}

// calibrationScenario returns the scenario of one pass: a cluster is created, then come single changes, bursts of
// changes, a probe and a restart. The restarted subject finds its rules and writes all of them again. A lean pass has
// only what large cells are needed for.
func calibrationScenario(c CalibrationCell, lean bool, seed uint64, timeout time.Duration) scenarios.Scenario {
	settle := func() scenarios.Step { return scenarios.Step{Settle: &scenarios.Settle{Timeout: timeout}} }
	s := scenarios.Scenario{
		Name: "calibrate", Description: "full syncs into empty tables and over existing rules, single changes and bursts of changes, for the cost model", Seed: seed,
		Shape: scenarios.Shape{Services: c.Services, Endpoints: scenarios.Endpoints{Count: c.Endpoints}, Protocols: map[string]float64{"UDP": 0.1}},
		// One sync at a time, and no full sync in between.
		Proxy: scenarios.Proxy{MinSyncPeriod: burstWait, SyncPeriod: time.Hour, Burst: 1},
		Steps: []scenarios.Step{{Create: &scenarios.Create{}}, settle()},
	}
	if c.Skewed {
		s.Shape.Endpoints.Distribution = "zipf"
	}
	for range singleChanges {
		s.Steps = append(s.Steps, scenarios.Step{Churn: &scenarios.Churn{Rate: 1, Events: 1}}, settle())
	}
	for _, n := range bursts {
		if n <= c.Services/2 && (!lean || n == leanBurst) {
			s.Steps = append(s.Steps, scenarios.Step{Churn: &scenarios.Churn{Rate: beforeBurst, Events: 2}},
				scenarios.Step{Churn: &scenarios.Churn{Rate: 20000, Events: n}}, settle())
		}
	}
	s.Steps = append(s.Steps, scenarios.Step{Probe: &scenarios.Probe{Kind: "traversal", Positions: calibrationPositions, Samples: calibrationPackets}})
	if !lean {
		s.Steps = append(s.Steps, scenarios.Step{Restart: &scenarios.Restart{}}, settle())
	}
	s.Fill()
	return s
}
