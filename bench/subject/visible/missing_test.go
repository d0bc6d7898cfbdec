package visible

import (
	"testing"
	"time"

	"synclab/sim"
)

func TestMissingSinceTheOldestChange(t *testing.T) {
	b := newBed(t)
	want := func(ms int) {
		t.Helper()
		var at time.Time
		if ms > 0 {
			at = epoch.Add(time.Duration(ms) * time.Millisecond)
		}
		if got := b.MissingSince(); !got.Equal(at) {
			t.Errorf("missing since %v, want %v", got, at)
		}
	}
	b.change(sim.Add, service("a"))
	b.change(sim.Add, service("b"))
	want(0)
	b.at(1).change(sim.Add, slice("a", "1"))
	b.at(2).change(sim.Add, slice("b", "2"))
	b.at(3).change(sim.Update, slice("a", "3"))
	want(1)
	b.at(4).commit("IPv4 ns/a:http=1").saw("Add a IPv4 due 1 visible 4")
	want(2)
	b.at(5).commit("IPv4 ns/a:http=1", "IPv4 ns/b:http=2").saw("Add b IPv4 due 2 visible 5")
	want(3)
	b.at(6).commit("IPv4 ns/a:http=3", "IPv4 ns/b:http=2").saw("Update a IPv4 due 3 visible 6")
	want(0)
}
