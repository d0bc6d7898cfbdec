package direct

import (
	"context"
	"fmt"
	"testing"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/iptables"
	"synclab/proxier/kernel/xtables"
)

// The whole way of a payload into the kernel: everything, over what is there already, and the chains of one Service
// among all. What the kernel needs of it is system-ms.
func BenchmarkRestore(b *testing.B) {
	for _, services := range []int{1000, 10000} {
		c := &cluster{corev1.IPv4Protocol, 10}
		full := c.payload(services, upTo(services), 0)
		for _, x := range []struct {
			kind     string
			payloads []string
		}{
			{"full", []string{full}},
			{"partial", []string{c.payload(services, []int{services / 2}, 1), c.payload(services, []int{services / 2}, 0)}},
		} {
			b.Run(fmt.Sprintf("kind=%s/services=%d/endpoints=10", x.kind, services), func(b *testing.B) {
				enter(b, c.family)
				tables := open(b, c.family)
				give := func(payload string) iptables.Run {
					segments := [][]byte{unsafe.Slice(unsafe.StringData(payload), len(payload))}
					run, err := tables.give(context.Background(), &script{segments: segments})
					if err != nil {
						b.Fatal(err)
					}
					return run
				}
				give(full)
				b.ReportAllocs()
				var user, system time.Duration
				for i := 0; b.Loop(); i++ {
					run := give(x.payloads[i%len(x.payloads)])
					b.SetBytes(int64(run.Bytes))
					user, system = user+run.User, system+run.System
				}
				b.ReportMetric(user.Seconds()*1000/float64(b.N), "user-ms/op")
				b.ReportMetric(system.Seconds()*1000/float64(b.N), "system-ms/op")
			})
		}
	}
}

// Without the kernel: a payload encoded onto an empty table, and a small one spliced into a large table.
func BenchmarkSplice(b *testing.B) {
	for _, services := range []int{1000, 10000} {
		c := &cluster{corev1.IPv4Protocol, 10}
		full, partial := []byte(c.payload(services, upTo(services), 0)), []byte(c.payload(services, []int{services / 2}, 1))
		empty := emptyTable(b, c.family)
		large := spliced(b, empty, full)
		for _, x := range []struct {
			kind  string
			table *xtables.Table
			text  []byte
		}{{"encode", empty, full}, {"splice", large, partial}} {
			b.Run(fmt.Sprintf("kind=%s/services=%d/endpoints=10", x.kind, services), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					b.SetBytes(int64(len(spliced(b, x.table, x.text).Entries)))
				}
			})
		}
	}
}
