package direct

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// The whole way of a payload into the kernel: everything, and the chains of one Service among all.
func BenchmarkRestore(b *testing.B) {
	for _, services := range []int{1000, 10000} {
		c := &cluster{corev1.IPv4Protocol, 10}
		full := [][]byte{[]byte(c.payload(services, upTo(services), 0))}
		partial := [][][]byte{{[]byte(c.payload(services, []int{services / 2}, 1))}, {[]byte(c.payload(services, []int{services / 2}, 0))}}
		enter(b, c.family)
		tables := open(b, c.family)
		give := func(segments [][]byte) int {
			size, err := tables.handOver(context.Background(), &script{segments: segments})
			if err != nil {
				b.Fatal(err)
			}
			return size
		}
		give(full)
		b.Run(fmt.Sprintf("kind=full/services=%d", services), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.SetBytes(int64(give(full)))
			}
		})
		i := 0
		b.Run(fmt.Sprintf("kind=partial/services=%d", services), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.SetBytes(int64(give(partial[i%2])))
				i++
			}
		})
	}
}
