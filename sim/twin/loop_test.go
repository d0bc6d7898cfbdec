package twin

import (
	"testing"
	"time"
)

// BenchmarkLoop tells how many changes a second of real time the loop of one node takes.
func BenchmarkLoop(b *testing.B) {
	cost := Linear{Full: 3 * time.Second, Partial: 80 * time.Millisecond, PerService: 400 * time.Microsecond, Spread: 0.15}
	b.ReportAllocs()
	var changes int64
	for b.Loop() {
		source, err := Poisson{Population: Population{Services: 20_000}, Rate: Rate{PerSecond: 50}}.Source(1)
		if err != nil {
			b.Fatal(err)
		}
		r, err := Run(Synclab(cost, true), source, Options{Span: Span{Length: time.Hour, Settle: time.Minute}})
		if err != nil {
			b.Fatal(err)
		}
		changes += r.Latency.Count
	}
	b.ReportMetric(float64(changes)/b.Elapsed().Seconds(), "changes/s")
}
