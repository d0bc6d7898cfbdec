package bench

import (
	"math"
	"slices"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"testing"
	"time"
)

// The first cells have different sizes and different numbers of endpoints. Held-out cells are larger than all fitted
// ones, with other endpoints and another shape.
func TestCalibrationDesign(t *testing.T) {
	for _, largest := range []int{20, 60, 1000, 8000, 10000} {
		for _, holdOut := range []bool{false, true} {
			l := newLane("synclab/nftables", subject.Spec{Name: "synclab/nftables"}, &CalibrateOptions{MaxServices: largest, HoldOut: holdOut})
			sizes, each := map[int]bool{}, map[int]bool{}
			for _, c := range l.start {
				sizes[c.Services], each[c.Endpoints] = true, true
			}
			if len(sizes) < 2 || len(each) < 3 {
				t.Errorf("up to %d: the first cells are %v", largest, l.start)
			}
			for _, c := range l.candidates(CalibrationCell{Services: largest, Endpoints: 7}) {
				if c.Services > l.top {
					t.Errorf("up to %d, hold out %v: %v may be measured", largest, holdOut, c)
				}
			}
			if holdOut == (len(l.held) == 0) {
				t.Errorf("up to %d, hold out %v: %v", largest, holdOut, l.held)
			}
			if holdOut && largest >= 100 && l.held[0].Services != 5*l.top {
				t.Errorf("%v is held out of a fit of up to %d Services", l.held[0], l.top)
			}
			for _, c := range slices.Concat(l.start, l.held, l.candidates(CalibrationCell{})) {
				for _, lean := range []bool{false, true} {
					s := calibrationScenario(c, lean, 1, time.Minute)
					if err := s.Validate(); err != nil {
						t.Errorf("%v: %v", c, err)
					}
				}
			}
		}
	}
}

// aCalibration makes a calibration of lanes. Its clock does not matter.
func aCalibration(holdOut bool, judge func(string, []raw.Record, CalibrationCell, []CalibrationCell) []Judgement, lanes ...*lane) *calibration {
	o := &CalibrateOptions{HoldOut: holdOut, Judge: judge, Asked: CalibrationCell{Services: 8000, Endpoints: 10}}
	o.Budget = time.Hour
	c := newCalibration(o)
	c.recorded, c.lanes = func() ([]raw.Record, error) { return nil, nil }, lanes
	return c
}

func aLane(name string, top int) *lane {
	return newLane(name, subject.Spec{Name: name}, &CalibrateOptions{MaxServices: top})
}

// Subjects take turns by their time so far. After a pass that exceeded the budget, a subject gets no larger cells. A
// subject without a feasible cell ends, and the others continue.
func TestCalibrationTurns(t *testing.T) {
	one, two := aLane("one", 8000), aLane("two", 8000)
	one.start, two.start = nil, nil
	one.passed(CalibrationCell{Services: 100, Endpoints: 10}, time.Second, false)
	two.passed(CalibrationCell{Services: 100, Endpoints: 10}, 2*time.Second, false)
	c := aCalibration(false, nil, one, two)
	if l, cell, err := c.next(); err != nil || l != one || cell.Services != 8000 || cell.Endpoints != 50 {
		t.Fatalf("%v %v: without laws, the largest cell comes next", cell, err)
	}
	large := CalibrationCell{Services: 1000, Endpoints: 10}
	one.passed(large, 3*time.Second, true)
	for _, cell := range one.candidates(c.Asked) {
		if cell.bulk() >= large.bulk() {
			t.Errorf("%v is tried, though %v exceeded the budget", cell, large)
		}
	}
	if l, _, err := c.next(); err != nil || l != two {
		t.Fatalf("the subject with less time is not next: %v", err)
	}
	two.limit = 0
	if l, _, err := c.next(); err != nil || l != one || !two.done {
		t.Fatalf("a subject without a cell does not end: %v", err)
	}
}

// Among the cells that fit into the time, by the upper bound of their syncs, the one with the most gain is next.
func TestCalibrationChoosesByGainAndTime(t *testing.T) {
	l := aLane("one", 8000)
	l.passed(CalibrationCell{Services: 500, Endpoints: 10}, 4*time.Second, false)
	cells := []CalibrationCell{{2000, 10, false}, {4000, 10, false}, {8000, 10, false}, {1000, 2, false}}
	judged := []Judgement{
		{Full: [2]time.Duration{3 * time.Second, 4 * time.Second}, Gain: 0.3},
		{Full: [2]time.Duration{9 * time.Second, 20 * time.Second}, Gain: 0.9},
		{Full: [2]time.Duration{30 * time.Second, 200 * time.Second}, Gain: 3},
		{Full: [2]time.Duration{time.Second, time.Second}, Gain: 0.01},
	}
	for _, c := range []struct {
		share time.Duration
		want  int
	}{{time.Minute, 1}, {10 * time.Second, 0}, {10 * time.Minute, 2}, {time.Second, -1}} {
		if got := l.best(cells, judged, c.share); got != c.want {
			t.Errorf("with %v: cell %d, want %d", c.share, got, c.want)
		}
	}
}

// A held-out cell is measured if its median time fits, after the fit had its share of the time.
func TestCalibrationHoldsOut(t *testing.T) {
	l := newLane("one", subject.Spec{Name: "one"}, &CalibrateOptions{MaxServices: 10000, HoldOut: true})
	l.start = nil
	l.passed(CalibrationCell{Services: 500, Endpoints: 10}, 4*time.Second, false)
	c := aCalibration(true, nil, l)
	if _, cell, err := c.next(); err != nil || cell.Services > l.top {
		t.Fatalf("%v before the fit had its time: %v", cell, err)
	}
	l.spent = 50 * time.Minute
	if _, cell, err := c.next(); err != nil || cell != (CalibrationCell{Services: 10000, Endpoints: 10}) || !l.lean(cell) {
		t.Fatalf("%v comes first of those held out: %v", cell, err)
	}
}

// After a pass of quadratic time, one of twice the size is expected to take at least twice as long. A measured cell is
// expected to take the measured time.
func TestCalibrationExpects(t *testing.T) {
	l := aLane("one", 8000)
	small, large := CalibrationCell{Services: 100, Endpoints: 10}, CalibrationCell{Services: 1000, Endpoints: 10}
	l.passed(small, time.Second, false)
	l.passed(large, 100*time.Second, false)
	if got := l.expect(CalibrationCell{Services: 2000, Endpoints: 10}, Judgement{}, true); got < 200*time.Second || got > 400*time.Second {
		t.Errorf("twice the size of 100 s: %v", got)
	}
	if got := l.expect(small, Judgement{}, true); got != time.Second {
		t.Errorf("a measured cell of 1 s: %v", got)
	}
	if got := l.expect(CalibrationCell{Services: 500, Endpoints: 10}, Judgement{}, true); got > 100*time.Second {
		t.Errorf("half the size of 100 s: %v", got)
	}
	bent := Judgement{Full: [2]time.Duration{300 * time.Second, 600 * time.Second}}
	if got := l.expect(CalibrationCell{Services: 2000, Endpoints: 10}, bent, true); got < 600*time.Second || math.IsInf(got.Seconds(), 0) {
		t.Errorf("with a model that predicts 600 s: %v", got)
	}
}
