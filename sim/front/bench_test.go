package front

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"synclab/scenarios"
	"synclab/sim"
)

// BenchmarkList lists all Services and EndpointSlices with a client-go client, including its decoding. The first list
// encodes the objects, later lists reuse the encodings. A subject that starts gets a first list, so each pass has a
// separate front unless cached=true.
//
// cpu-ms/op is the process's CPU time, of both sides, which excludes other load of the machine.
//
//	go test ./sim/front -run '^$' -bench 'List/services=10000' -benchtime 3x
func BenchmarkList(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		for _, contentType := range []string{"protobuf", "json"} {
			for _, cached := range []bool{false, true} {
				b.Run(fmt.Sprintf("services=%d/endpoints=10/encoding=%s/cached=%v", n, contentType, cached), func(b *testing.B) {
					l := newLab(b, scenarios.Shape{Services: n, Endpoints: scenarios.Endpoints{Count: 10}}, Options{})
					client := l.client(b, map[string]string{"protobuf": runtime.ContentTypeProtobuf, "json": runtime.ContentTypeJSON}[contentType])
					list := func() {
						services, err := client.CoreV1().Services("").List(b.Context(), metav1.ListOptions{})
						if err != nil {
							b.Fatal(err)
						}
						slices, err := client.DiscoveryV1().EndpointSlices("").List(b.Context(), metav1.ListOptions{})
						if err != nil {
							b.Fatal(err)
						}
						if len(services.Items) != n || len(slices.Items) != n {
							b.Fatalf("%d services and %d slices, want %d", len(services.Items), len(slices.Items), n)
						}
					}
					if cached {
						list()
					}
					cpu := time.Duration(0)
					for b.Loop() {
						if !cached {
							b.StopTimer()
							l.front.dropEncoded()
							debug.FreeOSMemory()
							b.StartTimer()
						}
						before := cpuTime(b)
						list()
						cpu += cpuTime(b) - before
					}
					b.ReportMetric(float64(cpu.Milliseconds())/float64(b.N), "cpu-ms/op")
				})
			}
		}
	}
}

// dropEncoded drops all encoded forms.
func (f *Front) dropEncoded() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.stores {
		s.own()
		for i, it := range s.sorted {
			s.sorted[i] = newItem(it.object)
		}
	}
}

// BenchmarkInformers measures from a client's first request until its informers have everything, as when a proxy
// starts: WatchList, protobuf.
func BenchmarkInformers(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		b.Run(fmt.Sprintf("services=%d/endpoints=10", n), func(b *testing.B) {
			l := newLab(b, scenarios.Shape{Services: n, Endpoints: scenarios.Endpoints{Count: 10}}, Options{})
			for b.Loop() {
				b.StopTimer()
				l.front.dropEncoded()
				if err := l.front.Encode(); err != nil { // as the lab does before a subject starts
					b.Fatal(err)
				}
				debug.FreeOSMemory()
				ctx, cancel := context.WithCancel(context.Background())
				factory := informers.NewSharedInformerFactory(l.client(b, runtime.ContentTypeProtobuf), 0)
				services, slices := factory.Core().V1().Services().Informer(), factory.Discovery().V1().EndpointSlices().Informer()
				b.StartTimer()
				factory.StartWithContext(ctx)
				if !cache.WaitFor(ctx, "", services.HasSyncedChecker(), slices.HasSyncedChecker()) {
					b.Fatal("never synced")
				}
				b.StopTimer()
				if got := len(services.GetStore().ListKeys()) + len(slices.GetStore().ListKeys()); got != 2*n {
					b.Fatalf("%d objects, want %d", got, 2*n)
				}
				cancel()
				factory.Shutdown()
				b.StartTimer()
			}
		})
	}
}

// BenchmarkWatch measures changes of EndpointSlices that reach watchers over loopback, in protobuf. An operation is
// one change, made, encoded, sent to and read by all watchers. With a rate, the changes are due evenly, and behind-max
// is the most events that any watcher was behind when a change was made, of the ring's 16384: it stays small if no
// queue grows. Without a rate, changes are made as fast as the slowest watcher takes them, at most a quarter of the
// ring ahead.
//
//	go test ./sim/front -run '^$' -bench 'Watch/watchers=10' -benchtime 50000x
func BenchmarkWatch(b *testing.B) {
	for _, watchers := range []int{1, 10} {
		for _, rate := range []int{5_000, 0} {
			b.Run(fmt.Sprintf("watchers=%d/rate=%d/services=10000/endpoints=10", watchers, rate), func(b *testing.B) {
				benchmarkWatch(b, watchers, rate)
			})
		}
	}
}

func benchmarkWatch(b *testing.B, watchers, rate int) {
	l := newLab(b, scenarios.Shape{Services: 10_000, Endpoints: scenarios.Endpoints{Count: 10}}, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var read []*atomic.Int64
	progress := make(chan struct{}, 1)
	for range watchers {
		stream := l.openFramed(b, ctx)
		counter := new(atomic.Int64)
		read = append(read, counter)
		go countFrames(stream, counter, progress)
	}
	trace, err := l.world.Churn(scenarios.Churn{Rate: 1e9, Events: b.N})
	if err != nil {
		b.Fatal(err)
	}
	slowest := func() int64 {
		least := read[0].Load()
		for _, counter := range read {
			least = min(least, counter.Load())
		}
		return least
	}
	const ahead = 4096 // without a rate: a quarter of the ring
	behind := int64(0)
	debug.FreeOSMemory()
	before := cpuTime(b)
	b.ResetTimer()
	start := time.Now()
	for i, ch := range trace {
		if rate > 0 {
			if wait := time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(rate))); wait > 0 {
				time.Sleep(wait)
			}
		} else {
			for int64(i)-slowest() > ahead {
				<-progress
			}
		}
		behind = max(behind, int64(i)-slowest())
		if err := l.cluster.Apply(ctx, sim.Change{Op: ch.Op, Object: ch.Object}); err != nil {
			b.Fatal(err)
		}
	}
	made := time.Since(start)
	for slowest() < int64(len(trace)) {
		<-progress
	}
	took := time.Since(start)
	b.StopTimer()
	b.ReportMetric(float64(len(trace))/made.Seconds(), "changes/s")
	b.ReportMetric(float64(behind), "behind-max")
	b.ReportMetric(float64((took-made).Microseconds())/1000, "drain-ms")
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(len(trace)), "cpu-us/change")
}

// openFramed watches slices from now on, in protobuf.
func (l *lab) openFramed(b *testing.B, ctx context.Context) io.Reader {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, l.url+"/apis/discovery.k8s.io/v1/endpointslices?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Accept", runtime.ContentTypeProtobuf)
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { response.Body.Close() })
	return response.Body
}

// countFrames reads the frames of a watch without decoding them: decoding is a cost of clients.
func countFrames(stream io.Reader, counter *atomic.Int64, progress chan<- struct{}) {
	in := bufio.NewReaderSize(stream, 256<<10)
	for {
		var size [4]byte
		if _, err := io.ReadFull(in, size[:]); err != nil {
			return
		}
		if _, err := in.Discard(int(binary.BigEndian.Uint32(size[:]))); err != nil {
			return
		}
		counter.Add(1)
		select {
		case progress <- struct{}{}:
		default:
		}
	}
}

// cpuTime is the process's user and system time so far.
func cpuTime(tb testing.TB) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
