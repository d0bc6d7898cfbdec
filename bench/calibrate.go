package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"synclab/proxier"
	"synclab/proxier/iptables"
	"synclab/scenarios"
)

// CalibrateOptions say what to calibrate. Run needs WorkerArgs and ProxyArgs; its Scenario and Reps are not used.
type CalibrateOptions struct {
	Run ExecuteOptions
	// Budget is how long all of it may take. Default 5 minutes.
	Budget time.Duration
	// MaxServices is the largest cell. Default 4000; with HoldOut 12000.
	MaxServices int
	// HoldOut fits to a third of MaxServices only, and measures cells beyond that to hold against what was predicted.
	HoldOut bool
	// Seed of the clusters and their changes. Default 1.
	Seed uint64
	// Confident is given all records after each round of cells and says which subjects need no more; nil: none ever does.
	Confident func([]Record) map[string]bool
	// Told is called with how far it is and how much of the budget is left.
	Told func(p Progress, left time.Duration)
}

// What a calibration measures.
const (
	defaultBudget        = 5 * time.Minute
	defaultLargest       = 4000
	holdOutFactor        = 3  // how many times the largest cell held out is larger than the fit's
	smallestCalibration  = 10 // Services
	calibrationRounds    = 6  // of the same cells, at most
	singleChanges        = 3  // of a pass, one after the other, each waited for
	calibrationPositions = 2  // of the probe: first and last
	calibrationPackets   = 300
)

// bursts are changes that come at once. Two single ones come before each, so far apart that the first has a sync of its
// own: that of the second then takes all of the burst. A sync in whose middle a burst arrives measures that as well.
var bursts = []int{8, 40, 150}

const beforeBurst = 20 // single changes a second

// burstWait is minSyncPeriod of a calibration: long enough for a burst to arrive, short enough not to hold up what
// settles.
const burstWait = 250 * time.Millisecond

// superlinear is the largest cell of subjects whose full sync grows so fast that larger ones would take all the time.
const superlinear = 1000

// calibrationCell is one size of the design.
type calibrationCell struct {
	services, endpoints int
}

// bulk is what most costs grow with, roughly: used to guess how long a pass takes.
func (c calibrationCell) bulk() float64 { return float64(c.services) * (float64(c.endpoints) + 2) }

// design lists cells by size index and endpoints: so that wherever it ends, what was measured has different sizes and
// different numbers of endpoints, and no one size alone tells what endpoints cost.
var design = []struct{ size, endpoints int }{
	{0, 10}, {2, 10}, {1, 30}, {3, 10}, {2, 2}, {4, 10}, {2, 30}, {4, 2}, {1, 10}, {3, 2}, {3, 30}, {0, 2}, {0, 30}, {1, 2}, {4, 30},
}

// calibrationCells are those of a largest size, held-out ones apart.
func calibrationCells(largest int, holdOut bool) (fit, held []calibrationCell) {
	top := largest
	if holdOut {
		top = largest / holdOutFactor
		held = []calibrationCell{{largest / 2, 10}, {largest, 10}, {largest, 2}, {largest * 2 / 3, 10}, {largest / 2, 2}, {largest / 2, 30}}
	}
	var sizes []int
	for divisor := 16; divisor >= 1; divisor /= 2 {
		if top/divisor >= smallestCalibration {
			sizes = append(sizes, top/divisor)
		}
	}
	for _, d := range design {
		if d.size < len(sizes) {
			fit = append(fit, calibrationCell{sizes[d.size], d.endpoints})
		}
	}
	return fit, held
}

// lane is one subject's calibration.
type lane struct {
	subject string
	cells   []calibrationCell
	queue   []calibrationCell // of this round, what is left
	round   int
	reps    map[calibrationCell]int
	spent   time.Duration
	took    map[calibrationCell]time.Duration
	limit   float64 // bulk that exceeded a budget
	done    bool
}

// guess is how long a pass of a cell will take: as long as it took before, or as those before let expect.
func (l *lane) guess(c calibrationCell) time.Duration {
	if took, ok := l.took[c]; ok {
		return took
	}
	var sizes []calibrationCell
	for known := range l.took {
		sizes = append(sizes, known)
	}
	if len(sizes) == 0 {
		return 0
	}
	slices.SortFunc(sizes, func(a, b calibrationCell) int { return cmp.Compare(a.bulk(), b.bulk()) })
	last := sizes[len(sizes)-1]
	factor := c.bulk() / last.bulk()
	if factor <= 1 {
		return l.took[last]
	}
	// A pass has a part that does not grow. What does is guessed from cells that differ enough to tell; one hiccup of a small
	// pass shall not make larger ones look endless.
	fixed, exponent := l.took[last], 0.7
	for _, known := range sizes {
		fixed = min(fixed, l.took[known])
	}
	fixed = fixed * 3 / 4
	for _, before := range slices.Backward(sizes) {
		if apart := last.bulk() / before.bulk(); apart >= 3 {
			exponent = math.Log(float64(l.took[last]-fixed)/float64(l.took[before]-fixed)) / math.Log(apart)
			break
		}
	}
	exponent = max(0.7, min(2.5, exponent+0.3)) // what grows faster shows late
	return fixed + time.Duration(float64(l.took[last]-fixed)*math.Pow(factor, exponent))
}

// fitting is the next cell that there is time for, -1 without any. At first one pass may take a part of the subject's share
// of the time only, so that slow subjects are measured often, at sizes that they take, rather than once at a large one.
func (l *lane) fitting(share time.Duration) int {
	for _, part := range []time.Duration{onePass, 1} {
		if i := slices.IndexFunc(l.queue, func(cell calibrationCell) bool { return l.guess(cell) <= share/part }); i >= 0 {
			return i
		}
	}
	return -1
}

// again is the known cell that was measured least, of those that there is time for. ok is false where there is none, or all
// were measured as often as is of use.
func (l *lane) again(share time.Duration) (cell calibrationCell, ok bool) {
	for _, c := range l.cells {
		took, known := l.took[c]
		if known && took <= share && c.bulk() < l.limit && l.reps[c] < calibrationRounds && (!ok || l.reps[c] < l.reps[cell]) {
			cell, ok = c, true
		}
	}
	return cell, ok
}

// onePass of a cell shall take no more than one such part of the time that a subject has left.
const onePass = 4

// calibration is one that runs.
type calibration struct {
	*CalibrateOptions
	w        *RunWriter
	deadline time.Time
	lanes    []*lane
	passes   int
}

// Calibrate measures a designed set of small cells, the subjects in turn, until Confident says that it is enough or the
// budget is used, and keeps it as an ordinary run. It returns the folder, also with an error: what was measured until then
// is in it.
func Calibrate(ctx context.Context, o CalibrateOptions) (dir string, err error) {
	o.fill()
	base := calibrationScenario(calibrationCell{o.MaxServices, 10}, o.Seed, o.Budget)
	o.Run.Scenario, o.Run.Reps = &base, calibrationRounds
	if err := o.Run.fill(); err != nil {
		return "", err
	}
	if _, err := SweepRuns(filepath.Dir(o.Run.Out)); err != nil {
		return "", fmt.Errorf("runs that were killed: %w", err)
	}
	run := Run{
		ID: filepath.Base(o.Run.Out), Started: time.Now(), Command: o.Run.Command, Scenario: base, Reps: calibrationRounds,
		Seed: o.Seed, Feed: o.Run.Feed, Versions: DetectVersions(ctx), Machine: DetectMachine(),
	}
	c := &calibration{CalibrateOptions: &o, deadline: time.Now().Add(o.Budget)}
	for i, subject := range o.Run.parsed {
		run.Subjects = append(run.Subjects, subject.Name)
		c.lanes = append(c.lanes, newLane(o.Run.Subjects[i], subject, &o))
	}
	if err := o.Run.prepareTools(ctx, &run.Versions); err != nil {
		return "", err
	}
	c.deadline = time.Now().Add(o.Budget) // building kube-proxy is no part of it
	if c.w, err = OpenRun(o.Run.Out, run, o.Run.Force); err != nil {
		return "", err
	}
	err = c.run(ctx)
	status, reason := StatusComplete, ""
	switch {
	case ctx.Err() != nil:
		status, reason, err = StatusInterrupted, "interrupted", ctx.Err()
	case err != nil:
		status, reason = StatusFailed, err.Error()
	}
	return c.w.Dir(), errors.Join(err, c.w.Close(status, reason))
}

func (o *CalibrateOptions) fill() {
	o.Budget = cmp.Or(o.Budget, defaultBudget)
	o.Seed = cmp.Or(o.Seed, 1)
	if o.MaxServices == 0 {
		o.MaxServices = defaultLargest
		if o.HoldOut {
			o.MaxServices *= holdOutFactor
		}
	}
	// A process of its own, fed by the API, has memory of its own, and all subjects are measured alike.
	o.Run.Feed = cmp.Or(o.Run.Feed, FeedAPI)
	if o.Run.Out == "" {
		o.Run.Out = newFolder(filepath.Join("runs", "calibrate-"+time.Now().Format("20060102-150405")))
	}
	if o.Told == nil {
		o.Told = func(Progress, time.Duration) {}
	}
}

func newLane(text string, about Subject, o *CalibrateOptions) *lane {
	largest := o.MaxServices
	if about.Proxier == KubeProxy && about.Backend == proxier.Iptables && about.Variant == iptables.Nft {
		largest = min(largest, superlinear)
	}
	fit, held := calibrationCells(largest, o.HoldOut)
	l := &lane{subject: text, cells: append(fit, held...), took: map[calibrationCell]time.Duration{}, limit: math.Inf(1)}
	if o.HoldOut { // large ones early, or the budget might end before they come
		l.cells = nil
		for n := 5; len(fit) > 0 || len(held) > 0; n = 2 {
			n = min(n, len(fit))
			l.cells, fit = append(l.cells, fit[:n]...), fit[n:]
			if len(held) > 0 {
				l.cells, held = append(l.cells, held[0]), held[1:]
			}
		}
	}
	l.reps = map[calibrationCell]int{}
	l.begin(1)
	return l
}

// core is how many cells come twice before the others come at all: one value of a cell may have met a hiccup of the
// machine, and the largest cells decide where a law goes beyond them.
const core = 9

// begin fills the queue of a round: the first cells, these again, the others, then all of them.
func (l *lane) begin(round int) {
	l.round = round
	switch n := min(core, len(l.cells)); round {
	case 1, 2:
		l.queue = slices.Clone(l.cells[:n])
	case 3:
		if l.queue = slices.Clone(l.cells[n:]); len(l.queue) == 0 {
			l.queue = slices.Clone(l.cells)
		}
	default:
		l.queue = slices.Clone(l.cells)
	}
}

// calibrationScenario is what one pass does: a cluster comes into being, single changes, bursts of changes, a probe, and
// another process of the subject, which finds the rules there and writes all of them again.
func calibrationScenario(c calibrationCell, seed uint64, timeout time.Duration) scenarios.Scenario {
	settle := func() scenarios.Step { return scenarios.Step{Settle: &scenarios.Settle{Timeout: timeout}} }
	s := scenarios.Scenario{
		Name: "calibrate", Description: "full syncs into empty tables and over existing rules, single changes and bursts of changes at small sizes, for the cost model", Seed: seed,
		Shape: scenarios.Shape{Services: c.services, Endpoints: scenarios.Endpoints{Count: c.endpoints}, Protocols: map[string]float64{"UDP": 0.1}},
		// One sync at a time; no full sync comes in between.
		Proxy: scenarios.Proxy{MinSyncPeriod: burstWait, SyncPeriod: time.Hour, Burst: 1},
		Steps: []scenarios.Step{{Create: &scenarios.Create{}}, settle()},
	}
	for range singleChanges {
		s.Steps = append(s.Steps, scenarios.Step{Churn: &scenarios.Churn{Rate: 1, Events: 1}}, settle())
	}
	for _, n := range bursts {
		if n <= c.services/2 {
			s.Steps = append(s.Steps, scenarios.Step{Churn: &scenarios.Churn{Rate: beforeBurst, Events: 2}},
				scenarios.Step{Churn: &scenarios.Churn{Rate: 20000, Events: n}}, settle())
		}
	}
	s.Steps = append(s.Steps, scenarios.Step{Probe: &scenarios.Probe{Kind: "traversal", Positions: calibrationPositions, Samples: calibrationPackets}},
		scenarios.Step{Restart: &scenarios.Restart{}}, settle())
	s.Fill()
	return s
}

func (c *calibration) run(ctx context.Context) error {
	for {
		l := c.next()
		if l == nil {
			return nil
		}
		cell := l.queue[0]
		l.queue = l.queue[1:]
		began := time.Now()
		exceeded, err := c.pass(ctx, l, cell)
		took := time.Since(began)
		l.spent += took
		if before, ok := l.took[cell]; ok {
			took = (before + took) / 2
		}
		l.took[cell] = took
		if exceeded {
			l.limit = min(l.limit, cell.bulk())
		}
		if err != nil {
			return fmt.Errorf("%s, %d Services of %d endpoints: %w", l.subject, cell.services, cell.endpoints, err)
		}
		if len(l.queue) == 0 {
			if err := c.another(); err != nil {
				return err
			}
		}
	}
}

// next is the subject that had the least time so far and has a cell that there is time for, which it puts first. Cells that
// would take more than their share of what is left wait: they are guessed better later, or left out in the end.
func (c *calibration) next() *lane {
	for {
		var active []*lane
		for _, l := range c.lanes {
			if !l.done && len(l.queue) > 0 {
				active = append(active, l)
			}
		}
		left := time.Until(c.deadline)
		if len(active) == 0 || left <= 0 {
			return nil
		}
		share := left / time.Duration(len(active))
		slices.SortStableFunc(active, func(a, b *lane) int { return cmp.Compare(a.spent, b.spent) })
		for _, l := range active {
			l.queue = slices.DeleteFunc(l.queue, func(cell calibrationCell) bool { return cell.bulk() >= l.limit })
			if i := l.fitting(share); i >= 0 {
				cell := l.queue[i]
				l.queue = slices.Insert(slices.Delete(l.queue, i, i+1), 0, cell)
				return l
			}
			if cell, ok := l.again(share); ok { // no time for what is left of the round: what is small once more
				l.queue = []calibrationCell{cell}
				return l
			}
			l.done = true // what is left of the time is the others'
		}
	}
}

// another begins the next round of subjects that have ended one and are not known well enough.
func (c *calibration) another() error {
	var enough map[string]bool
	if c.Confident != nil {
		if err := c.w.Flush(); err != nil {
			return err
		}
		_, records, err := ReadRun(c.w.Dir())
		if err != nil {
			return err
		}
		enough = c.Confident(records)
	}
	for i, l := range c.lanes {
		if len(l.queue) > 0 || l.done {
			continue
		}
		if l.round > 1 && enough[c.Run.parsed[i].Name] || l.round == calibrationRounds {
			l.done = true
			continue
		}
		l.begin(l.round + 1)
	}
	return nil
}

func (c *calibration) pass(ctx context.Context, l *lane, cell calibrationCell) (exceeded bool, err error) {
	left := time.Until(c.deadline)
	l.reps[cell]++
	rep := l.reps[cell]
	s := calibrationScenario(cell, c.Seed+uint64(rep)-1, max(left, 10*time.Second))
	if err := s.Validate(); err != nil {
		return false, err
	}
	c.passes++
	p := pass{subject: l.subject, rep: rep, cell: scenarios.Cell{Scenario: s, Params: map[string]string{
		"shape.services": strconv.Itoa(cell.services), "shape.endpoints.count": strconv.Itoa(cell.endpoints)}}}
	progress := Progress{Subject: l.subject, Cell: c.Run.cellName(p.cell), Rep: rep, Reps: calibrationRounds, Pass: c.passes}
	c.Run.Progress = oneAtATime(func(p Progress) { c.Told(p, max(0, time.Until(c.deadline))) })
	return c.Run.runPass(ctx, c.w, p, progress)
}

// LoadAverage is how many threads wanted to run in the last minute, the mean; 0 where that is not known.
func LoadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return load
}
