package bench

import (
	"math"
	"testing"
	"time"
)

// Wherever a calibration ends after a few passes, sizes and numbers of endpoints differ; what is held out is larger than
// all of the fit.
func TestCalibrationDesign(t *testing.T) {
	for _, largest := range []int{60, 1000, 4000, 12000} {
		for _, holdOut := range []bool{false, true} {
			fit, held := calibrationCells(largest, holdOut)
			top := 0
			sizes, each := map[int]bool{}, map[int]bool{}
			for i, c := range fit {
				top = max(top, c.services)
				if i < 5 {
					sizes[c.services], each[c.endpoints] = true, true
				}
			}
			if len(sizes) < 2 || len(each) < 2 {
				t.Errorf("up to %d: the first cells are %v", largest, fit[:min(5, len(fit))])
			}
			if holdOut == (len(held) == 0) {
				t.Errorf("up to %d, hold out %v: %v", largest, holdOut, held)
			}
			for _, c := range held {
				if c.services <= top || c.services > largest {
					t.Errorf("up to %d: %v is held out of a fit of up to %d", largest, c, top)
				}
			}
			for _, c := range append(fit, held...) {
				s := calibrationScenario(c, 1, time.Minute)
				if err := s.Validate(); err != nil {
					t.Errorf("%v: %v", c, err)
				}
			}
		}
	}
}

// Lanes take turns by the time that they used; cells that are guessed to exceed their share wait, and end the lane when
// nothing else is left; a larger cell than one that exceeded a budget is not tried.
func TestCalibrationTurns(t *testing.T) {
	small, large, huge := calibrationCell{100, 10}, calibrationCell{1000, 10}, calibrationCell{100000, 10}
	one := &lane{subject: "one", took: map[calibrationCell]time.Duration{small: time.Second}, limit: math.Inf(1), spent: time.Second, queue: []calibrationCell{huge, large}}
	two := &lane{subject: "two", took: map[calibrationCell]time.Duration{}, limit: math.Inf(1), queue: []calibrationCell{small, large}}
	c := &calibration{CalibrateOptions: &CalibrateOptions{}, deadline: time.Now().Add(time.Minute), lanes: []*lane{one, two}}
	if l := c.next(); l != two || l.queue[0] != small {
		t.Fatalf("%+v", l)
	}
	two.spent = 2 * time.Second
	if l := c.next(); l != one || l.queue[0] != large || len(l.queue) != 2 {
		t.Fatalf("what is too long did not wait: %+v", l)
	}
	one.limit = large.bulk()
	if l := c.next(); l != two || !one.done {
		t.Fatalf("what exceeded a budget is tried again: %+v", l)
	}
	one.done, one.spent, one.cells, one.reps = false, 0, []calibrationCell{small, large}, map[calibrationCell]int{}
	one.queue = []calibrationCell{huge}
	if l := c.next(); l != one || len(l.queue) != 1 || l.queue[0] != small {
		t.Fatalf("time that is too short for what is left of a round is not used: %+v", l)
	}
	one.reps[small] = calibrationRounds
	one.queue, two.queue = []calibrationCell{huge}, nil
	if l := c.next(); l != nil {
		t.Fatalf("%+v", l)
	}
}

// What would take most of a subject's time waits until the rest of the round is measured, and is measured then.
func TestCalibrationLargeCellsWait(t *testing.T) {
	small, large := calibrationCell{100, 10}, calibrationCell{1000, 10}
	l := &lane{took: map[calibrationCell]time.Duration{small: time.Second, large: 40 * time.Second}, queue: []calibrationCell{large, small}}
	if i := l.fitting(time.Minute); i != 1 {
		t.Errorf("it begins with cell %d", i)
	}
	l.queue = l.queue[:1]
	if i := l.fitting(time.Minute); i != 0 {
		t.Errorf("when nothing else is left: %d", i)
	}
	if i := l.fitting(30 * time.Second); i != -1 {
		t.Errorf("what there is no time for: %d", i)
	}
}

// What takes quadratic time is not guessed to take linear time.
func TestCalibrationGuess(t *testing.T) {
	l := &lane{took: map[calibrationCell]time.Duration{{100, 10}: time.Second, {1000, 10}: 100 * time.Second}}
	if got := l.guess(calibrationCell{2000, 10}); got < 400*time.Second || got > 600*time.Second {
		t.Errorf("twice the size of 100 s is guessed to take %v", got)
	}
	if got := l.guess(calibrationCell{100, 10}); got != time.Second {
		t.Errorf("what took a second is guessed to take %v", got)
	}
	if got := l.guess(calibrationCell{500, 10}); got > 100*time.Second {
		t.Errorf("half the size of 100 s is guessed to take %v", got)
	}
	// One that met a hiccup, a little larger than the one before.
	l.took = map[calibrationCell]time.Duration{{12, 10}: 3 * time.Second, {50, 2}: 7 * time.Second}
	if got := l.guess(calibrationCell{100, 10}); got > 50*time.Second {
		t.Errorf("six times the size of 7 s is guessed to take %v", got)
	}
}
