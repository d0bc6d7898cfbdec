package machine

import (
	"runtime"
	"testing"
	"time"
)

// The watchdog answers for each CPU, and each time anew. A thread that is late has the gap until now.
func TestGaps(t *testing.T) {
	g, err := WatchGaps()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		gaps, err := g.Read()
		if err != nil || len(gaps) != runtime.NumCPU() {
			t.Fatalf("%v, %v; want %d CPUs", gaps, err, runtime.NumCPU())
		}
		for _, gap := range gaps {
			if gap.Longest < 0 {
				t.Errorf("%+v", gap)
			}
		}
	}
	if err := g.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for err == nil { // what it wrote before may still be read
		_, err = g.Read()
	}
	if err := g.Close(); err == nil {
		t.Error("a watchdog that was killed ended well")
	}
}

// What is read is the longest gap since the last read, of which one may last.
func TestGapOfAThread(t *testing.T) {
	p := &pinned{}
	p.longest.Store(int64(time.Second))
	p.due.Store(monotonic() - int64(time.Hour))
	if first, second := p.read(), p.read(); first < time.Hour || second < time.Hour {
		t.Errorf("%v, then %v: want the gap that lasts", first, second)
	}
	p.longest.Store(int64(time.Second))
	p.due.Store(monotonic() + int64(time.Hour))
	if first, second := p.read(), p.read(); first != time.Second || second != 0 {
		t.Errorf("%v, then %v: want the longest, once", first, second)
	}
}
