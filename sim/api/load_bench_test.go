package api

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"synclab/scenarios"
	"synclab/sim/world"
)

// BenchmarkLoad measures from an empty process to "handlers have everything": generate, load into the fake clientset,
// start informers, until the handlers of all three kinds have seen their initial list. Growth shows in cpu-ns/service,
// the process's CPU time, which excludes other load of the machine. The peak of the resident set is that of the whole
// benchmark process, so run one size at a time:
//
//	go test ./sim -run '^$' -bench 'Load/services=10000$' -benchtime 1x
func BenchmarkLoad(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000, 50_000} {
		b.Run(fmt.Sprintf("services=%d/endpoints=10", n), func(b *testing.B) {
			cpu := time.Duration(0)
			for b.Loop() {
				before := cpuTime(b)
				c := loaded(b, scenarios.Shape{Services: n})
				cpu += cpuTime(b) - before
				b.StopTimer()
				c.Stop()
				debug.FreeOSMemory() // garbage of the last pass must not count for this one
				b.StartTimer()
			}
			b.ReportMetric(float64(cpu.Nanoseconds())/float64(b.N*n), "cpu-ns/service")
			b.ReportMetric(peakRSS(b), "peak-RSS-MiB")
		})
	}
}

// loaded returns a cluster whose informers' handlers have everything of a shape.
func loaded(tb testing.TB, shape scenarios.Shape) *Cluster {
	o, err := world.Generate(shape, 1)
	if err != nil {
		tb.Fatal(err)
	}
	c := NewCluster(clock.RealClock{})
	if err := c.Load(context.Background(), o); err != nil {
		tb.Fatal(err)
	}
	want := int64(len(o.Services) + len(o.Slices) + len(o.Nodes))
	if got := startHandlers(tb, c, context.Background()); got.Load() != want {
		tb.Fatalf("handlers saw %d objects, want %d", got.Load(), want)
	}
	return c
}

// startHandlers counts adds of all three kinds, and returns when the handlers have synced.
func startHandlers(tb testing.TB, c *Cluster, ctx context.Context) *atomic.Int64 {
	adds := new(atomic.Int64)
	handler := cache.ResourceEventHandlerFuncs{AddFunc: func(any) { adds.Add(1) }}
	f := c.Informers()
	var synced []cache.DoneChecker
	for _, informer := range []cache.SharedIndexInformer{
		f.Core().V1().Services().Informer(), f.Discovery().V1().EndpointSlices().Informer(), f.Core().V1().Nodes().Informer(),
	} {
		r, err := informer.AddEventHandler(handler)
		if err != nil {
			tb.Fatal(err)
		}
		synced = append(synced, r.HasSyncedChecker())
	}
	f.StartWithContext(ctx)
	if !cache.WaitFor(ctx, "", synced...) {
		tb.Fatal("handlers never synced")
	}
	return adds
}

// cpuTime is the process's user and system time so far.
func cpuTime(tb testing.TB) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peakRSS is the process's VmHWM in MiB.
func peakRSS(tb testing.TB) float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		tb.Skip("no /proc: ", err)
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmHWM:" {
			kib, err := strconv.ParseFloat(fields[1], 64)
			if err != nil {
				tb.Fatal(err)
			}
			return kib / 1024
		}
	}
	tb.Fatal("no VmHWM in /proc/self/status")
	return 0
}
