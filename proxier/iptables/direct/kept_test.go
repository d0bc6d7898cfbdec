package direct

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	testclock "k8s.io/utils/clock/testing"

	"synclab/proxier/iptables"
)

// What others do to a table that we handed over and kept a copy of is noticed, also where its size says nothing.
func TestKeptCopy(t *testing.T) {
	for _, family := range families {
		t.Run(string(family), func(t *testing.T) {
			enter(t, family)
			c := &cluster{family, 3}
			mine, other := open(t, family), open(t, family)
			give := func(tables *Tables, text string) {
				t.Helper()
				if _, err := tables.give(context.Background(), scriptOf(text)); err != nil {
					t.Fatal(err)
				}
			}
			mustRun(t, family, "", "", "-t", "nat", "-N", "FOREIGN")
			mustRun(t, family, "", "", "-t", "nat", "-A", "FOREIGN", "-m", "mark", "--mark", "1")
			give(mine, c.payload(9, upTo(9), 0))
			for i, payload := range []string{c.payload(9, []int{3}, 1), c.payload(9, []int{3}, 2), "*nat\nCOMMIT\n"} {
				before := mine.kept.tables[iptables.NAT]
				if give(mine, payload); before == nil || mine.kept.tables[iptables.NAT] != before {
					t.Fatalf("payload %d: the copy was not used", i)
				}
			}
			// Through the tool, a rule for a rule of the same size.
			mustRun(t, family, "", "", "-t", "nat", "-R", "FOREIGN", "1", "-m", "mark", "--mark", "2")
			give(mine, c.payload(9, []int{4}, 1))
			if now := saved(t, family, "-t", "nat"); !strings.Contains(now, "-A FOREIGN -m mark --mark 0x2") {
				t.Errorf("a foreign rule is as it was before:\n%s", now)
			}
			// By another that writes as we do, endpoints for as many.
			give(other, c.payload(9, []int{5}, 7))
			give(mine, c.payload(9, []int{4}, 2))
			addr, _ := c.endpoint(5*c.endpoints + 7)
			if now := saved(t, family, "-t", "nat"); !strings.Contains(now, "-s "+addr+"/") {
				t.Errorf("what another proxier wrote is gone:\n%s", now)
			}
		})
	}
}

// Somebody who takes no lock replaces a table between our replacement and what gives the kept rules their counters, which
// the kernel then refuses. No line of the payload is to blame: the rules were taken, and what the other wrote stays.
func TestCountersRefused(t *testing.T) {
	for _, family := range families {
		t.Run(string(family), func(t *testing.T) {
			enter(t, family)
			c := &cluster{family, 3}
			mine := open(t, family)
			other, err := New(iptables.RestorerOptions{Family: family, LockFile: filepath.Join(t.TempDir(), "lock")})
			if err != nil {
				t.Fatal(err)
			}
			give := func(tables *Tables, text string) {
				t.Helper()
				if _, err := tables.give(context.Background(), scriptOf(text)); err != nil {
					t.Fatal(err)
				}
			}
			mustRun(t, family, "", "", "-t", "nat", "-N", "FOREIGN")
			mustRun(t, family, "restore", "*nat\n[7:700] -A FOREIGN -m mark --mark 1\nCOMMIT\n", "-w", "--noflush", "--counters")
			give(mine, c.payload(9, upTo(9), 0))
			if now := saved(t, family, "-c", "-t", "nat"); !strings.Contains(now, "[7:700] -A FOREIGN") {
				t.Fatalf("the counters of a kept rule are gone:\n%s", now)
			}
			meanwhile := 0
			mine.replaced = func() {
				meanwhile++
				give(other, "*nat\n:OTHER - [0:0]\n-A OTHER -m mark --mark 2\nCOMMIT\n")
			}
			give(mine, c.payload(9, []int{4}, 1))
			mine.replaced = nil
			give(mine, c.payload(9, []int{5}, 1))
			now := saved(t, family, "-t", "nat")
			for _, endpoint := range []int{4*c.endpoints + 1, 5*c.endpoints + 1} {
				if addr, _ := c.endpoint(endpoint); !strings.Contains(now, "-s "+addr+"/") {
					t.Errorf("%s is missing:\n%s", addr, now)
				}
			}
			if meanwhile != 1 || !strings.Contains(now, "-A OTHER -m mark --mark 0x2") {
				t.Errorf("what the other wrote, %d times, is gone:\n%s", meanwhile, now)
			}
		})
	}
}

// Pads never repeat from one table to the next, and fit into an entry.
func TestPads(t *testing.T) {
	for pad := range 65536 {
		if next := nextPad(pad); next == pad || next < leastPad || next > mostPad || next%8 != 0 && pad%8 == 0 {
			t.Fatalf("%d after %d", next, pad)
		}
	}
	if size := emptyTable(t, corev1.IPv6Protocol).Wire.HeadSize() + mostPad; size >= 1<<16 {
		t.Errorf("the last entry may have %d bytes", size)
	}
}

// tickingClock moves by a second whenever it is looked at.
type tickingClock struct{ *testclock.FakePassiveClock }

func (c tickingClock) Now() time.Time {
	c.SetTime(c.FakePassiveClock.Now().Add(time.Second))
	return c.FakePassiveClock.Now()
}

func (c tickingClock) Since(start time.Time) time.Duration { return c.Now().Sub(start) }

// The kernel's time is that of the system calls, however short they are.
func TestKernelTime(t *testing.T) {
	for _, family := range families {
		t.Run(string(family), func(t *testing.T) {
			enter(t, family)
			c := &cluster{family, 3}
			tables, err := New(iptables.RestorerOptions{Family: family, Clock: tickingClock{testclock.NewFakePassiveClock(time.Unix(0, 0))}})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 2 {
				run, err := tables.give(t.Context(), scriptOf(c.payload(9, upTo(9), i)))
				if err != nil {
					t.Fatal(err)
				}
				if run.System == 0 || run.User != 0 || run.Wall <= run.System {
					t.Errorf("run %d: %+v", i, run)
				}
				if want := 2 * time.Second; i == 1 && run.System != want { // is the table as it was, and the new one
					t.Errorf("%v in the kernel, not %v", run.System, want)
				}
			}
		})
	}
}
