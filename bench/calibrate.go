package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"synclab/bench/machine"
	"synclab/bench/raw"
	"synclab/scenarios"
)

// CalibrateOptions describe a calibration. Run needs WorkerArgs and ProxyArgs; its Scenario and Reps are not used.
type CalibrateOptions struct {
	Run ExecuteOptions
	// Budget limits the time of the whole calibration. Default 5 minutes.
	Budget time.Duration
	// MaxServices is the size of the largest cell. Default 8000; with HoldOut 10000.
	MaxServices int
	// HoldOut fits to a fifth of MaxServices only. It measures larger cells to compare them with their predictions.
	HoldOut bool
	// Asked is the cluster to predict. Default 10,000 Services with 10 endpoints; with HoldOut MaxServices.
	Asked CalibrationCell
	// Seed of the clusters and their changes. Default 1.
	Seed uint64
	// Judge predicts cells from a subject's records; nil: the largest cell that there is time for comes next.
	Judge func(subject string, records []raw.Record, asked CalibrationCell, cells []CalibrationCell) []Judgement
}

// calibration is a running calibration.
type calibration struct {
	*CalibrateOptions
	w        *raw.RunWriter
	deadline time.Time
	lanes    []*lane
	passes   int

	// Tests set another clock and other passes.
	now      func() time.Time
	measure  func(ctx context.Context, l *lane, cell CalibrationCell) (exceeded bool, err error)
	recorded func() ([]raw.Record, error)
}

func newCalibration(o *CalibrateOptions) *calibration {
	c := &calibration{CalibrateOptions: o, now: time.Now}
	c.deadline, c.measure, c.recorded = c.now().Add(o.Budget), c.pass, c.written
	return c
}

// written returns the records so far.
func (c *calibration) written() ([]raw.Record, error) {
	if err := c.w.Flush(); err != nil {
		return nil, err
	}
	_, records, err := raw.ReadRun(c.w.Dir())
	return records, err
}

// Calibrate measures a few small cells of each subject. Then it measures the cells from which the cost model learns
// most, the subjects in turn, until the budget is used. The result is an ordinary run. Calibrate returns its folder,
// also with an error: the folder has what was measured until then.
func Calibrate(ctx context.Context, o CalibrateOptions) (dir string, err error) {
	o.fill()
	base := calibrationScenario(CalibrationCell{Services: o.MaxServices, Endpoints: 10}, false, o.Seed, o.Budget)
	o.Run.Scenario, o.Run.Reps, o.Run.calibrates = &base, calibrationRounds, true
	if err := o.Run.fill(); err != nil {
		return "", err
	}
	if err := o.Run.sweep(); err != nil {
		return "", err
	}
	run := raw.Run{
		Started: time.Now(), Command: o.Run.Command, Scenario: base, Reps: calibrationRounds,
		Seed: o.Seed, Feed: o.Run.Feed, Versions: machine.DetectVersions(ctx), Machine: machine.DetectMachine(),
	}
	c := newCalibration(&o)
	for i, subject := range o.Run.parsed {
		run.Subjects = append(run.Subjects, subject.Name)
		c.lanes = append(c.lanes, newLane(o.Run.Subjects[i], subject, &o))
	}
	if err := o.Run.prepareTools(ctx, &run); err != nil {
		return "", err
	}
	c.deadline = time.Now().Add(o.Budget) // the budget does not include the build of kube-proxy
	pace := machine.MeasurePace(ctx)
	run.Pace = &pace
	if c.w, err = o.Run.open("calibrate", run); err != nil {
		return "", err
	}
	err = c.run(ctx)
	status, reason := raw.StatusComplete, ""
	switch {
	case ctx.Err() != nil:
		status, reason, err = raw.StatusInterrupted, "interrupted", ctx.Err()
	case err != nil:
		status, reason = raw.StatusFailed, err.Error()
	}
	return c.w.Dir(), errors.Join(err, c.w.Close(status, reason))
}

func (o *CalibrateOptions) fill() {
	o.Budget = cmp.Or(o.Budget, defaultBudget)
	o.Seed = cmp.Or(o.Seed, 1)
	if o.MaxServices == 0 {
		o.MaxServices = largestServices
		if o.HoldOut {
			o.MaxServices = heldServices
		}
	}
	if o.Asked == (CalibrationCell{}) {
		o.Asked = CalibrationCell{Services: heldServices, Endpoints: usualEndpoints}
		if o.HoldOut {
			o.Asked.Services = o.MaxServices
		}
	}
	// With the feed "api" each subject is a separate process, and the memory of all subjects is measured alike.
	o.Run.Feed = cmp.Or(o.Run.Feed, raw.FeedAPI)
	if o.Run.Progress == nil {
		o.Run.Progress = func(Progress) {}
	}
}

func (c *calibration) run(ctx context.Context) error {
	for {
		l, cell, err := c.next()
		if err != nil || l == nil {
			return err
		}
		began := c.now()
		exceeded, err := c.measure(ctx, l, cell)
		l.passed(cell, c.now().Sub(began), exceeded)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", l.subject, cell, err)
		}
	}
}

// next returns the subject with the least time so far, and the cell that it measures next. It returns nil when there is
// no time for any cell of any subject.
func (c *calibration) next() (*lane, CalibrationCell, error) {
	for {
		var active []*lane
		for _, l := range c.lanes {
			if !l.done {
				active = append(active, l)
			}
		}
		left := c.deadline.Sub(c.now())
		if len(active) == 0 || left <= 0 {
			return nil, CalibrationCell{}, nil
		}
		l := slices.MinFunc(active, func(a, b *lane) int { return cmp.Compare(a.spent, b.spent) })
		share := left / time.Duration(len(active))
		if c.HoldOut && !l.holding && l.spent > time.Duration(fitShare*float64(l.spent+share)) {
			l.holding = true
		}
		cell, ok, err := c.choose(l, share)
		if err != nil || ok {
			return l, cell, err
		}
		if c.HoldOut && !l.holding {
			l.holding = true
			continue
		}
		l.done = true // the rest of its time goes to the other subjects
	}
}

// choose returns the subject's next cell. ok is false when no cell fits into share.
func (c *calibration) choose(l *lane, share time.Duration) (cell CalibrationCell, ok bool, err error) {
	if l.holding {
		for len(l.held) > 0 {
			cell, l.held = l.held[0], l.held[1:]
			judged, err := c.judge(l, []CalibrationCell{cell})
			if err != nil {
				return cell, false, err
			}
			if l.expect(cell, judged[0], false) <= share {
				return cell, true, nil
			}
		}
		return cell, false, nil
	}
	if len(l.start) > 0 {
		cell = l.start[0]
		l.start = l.start[1:]
		if len(l.took) == 0 || l.expect(cell, Judgement{}, true) <= share {
			return cell, true, nil
		}
		return c.choose(l, share)
	}
	cells := l.candidates(c.Asked)
	judged, err := c.judge(l, cells)
	if err != nil {
		return cell, false, err
	}
	i := l.best(cells, judged, share)
	if i < 0 {
		return cell, false, nil
	}
	return cells[i], true, nil
}

// judge calls Judge for cells, with the subject's records so far.
func (c *calibration) judge(l *lane, cells []CalibrationCell) ([]Judgement, error) {
	out := make([]Judgement, len(cells))
	for i, cell := range cells {
		out[i].Gain = cell.bulk()
	}
	if c.Judge == nil {
		return out, nil
	}
	records, err := c.recorded()
	if err != nil {
		return nil, err
	}
	records = slices.DeleteFunc(records, func(r raw.Record) bool { return r.Subject != l.name })
	if judged := c.Judge(l.name, records, c.Asked, cells); len(judged) == len(cells) {
		return judged, nil
	}
	return out, nil
}

func (c *calibration) pass(ctx context.Context, l *lane, cell CalibrationCell) (exceeded bool, err error) {
	left := time.Until(c.deadline)
	rep := l.reps[cell] + 1
	s := calibrationScenario(cell, l.lean(cell), c.Seed+uint64(rep)-1, max(left, 10*time.Second))
	if err := s.Validate(); err != nil {
		return false, err
	}
	c.passes++
	p := slot{subject: l.subject, rep: rep, cell: scenarios.Cell{Scenario: s, Params: cell.params()}}
	progress := Progress{Subject: l.subject, Cell: c.Run.cellName(p.cell), Rep: rep, Reps: calibrationRounds, Pass: c.passes, Left: max(0, left)}
	return c.Run.runSlot(ctx, c.w, p, progress)
}

// LoadAverage returns the mean number of runnable threads in the last minute, 0 where it is unknown.
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
