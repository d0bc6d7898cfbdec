package scenarios

import (
	"slices"
	"testing"
	"time"
)

// A stream takes no time by itself, or as long as its step says.
func TestTrafficLasts(t *testing.T) {
	s, err := Parse("x", []byte("name: x\nshape: {services: 7}\nsteps:\n  - create: {}\n  - traffic: {for: 10s}\n  - restart: {layout: tree}\n  - traffic: {stop: true}\n  - traffic: {}\n"), nil, Sizes{})
	if err != nil {
		t.Fatal(err)
	}
	want := []time.Duration{0, 10 * time.Second, 0, 0, 0}
	if got := s.Durations(); !slices.Equal(got, want) {
		t.Errorf("durations %v, want %v", got, want)
	}
	if got := *s.Steps[1].Traffic; got != (Traffic{Rate: 200, Services: 50, LongLived: 20, For: 10 * time.Second}) {
		t.Errorf("traffic %+v", got)
	}
	if got := *s.Steps[3].Traffic; got != (Traffic{Stop: true}) {
		t.Errorf("its end %+v", got)
	}
	if got := s.Steps[2].Restart.Layout; got != "tree" {
		t.Errorf("layout %q", got)
	}
}

func TestLayoutsThatThereAreNot(t *testing.T) {
	_, err := Parse("x", []byte("name: x\nshape: {services: 7}\nsteps:\n  - create: {}\n  - restart: {layout: bush}\n"), nil, Sizes{})
	if err == nil {
		t.Error("layout bush is taken")
	}
}
