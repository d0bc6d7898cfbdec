package bench

import (
	"testing"
	"time"
)

func TestPassTimes(t *testing.T) {
	var times passTimes
	if got := times.of("a", "services=100", 100); got != 0 {
		t.Errorf("before the first repetition: %v", got)
	}
	for _, seconds := range []int{9, 30, 10} {
		times.add("a", "services=100", 100, time.Duration(seconds)*time.Second)
	}
	times.add("a", "services=1600", 1600, 50*time.Second)
	for _, c := range []struct {
		subject, cell string
		services      int
		want          time.Duration
	}{
		{"a", "services=100", 100, 10 * time.Second}, // the median
		{"a", "services=400 x=1", 400, 20 * time.Second},
		{"a", "services=6400", 6400, 100 * time.Second},
		{"b", "services=100", 100, 30 * time.Second}, // of all
	} {
		if got := times.of(c.subject, c.cell, c.services); got != c.want {
			t.Errorf("%s at %s: %v, want %v", c.subject, c.cell, got, c.want)
		}
	}
}
