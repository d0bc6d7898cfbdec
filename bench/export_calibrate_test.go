package bench

import (
	"context"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"time"
)

// Climb runs a calibration with a fake clock. run makes the records of a pass and returns its duration.
func Climb(ctx context.Context, o CalibrateOptions, subjects []string, run func(subject string, cell CalibrationCell, rep int) ([]raw.Record, time.Duration)) ([]raw.Record, error) {
	o.fill()
	c := newCalibration(&o)
	at := c.now()
	c.now, c.deadline = func() time.Time { return at }, at.Add(o.Budget)
	var all []raw.Record
	c.recorded = func() ([]raw.Record, error) { return append([]raw.Record(nil), all...), nil }
	c.measure = func(_ context.Context, l *lane, cell CalibrationCell) (bool, error) {
		records, took := run(l.name, cell, l.reps[cell]+1)
		left := c.deadline.Sub(at)
		if took > left {
			at = c.deadline
			return true, nil
		}
		at = at.Add(took)
		all = append(all, records...)
		return false, nil
	}
	for _, name := range subjects {
		c.lanes = append(c.lanes, newLane(name, subject.Spec{Name: name}, &o))
	}
	err := c.run(ctx)
	return all, err
}
