package reports

import (
	"math"
	"testing"

	"synclab/bench"
)

// The phases of a sync add up to it: what follows once the kernel has everything is one of them.
func TestPhasesAddUp(t *testing.T) {
	values := map[bench.Metric]float64{
		bench.FullSync: 10, bench.Plan: 1, bench.Encode: 2, bench.ToolUser: 0.5, bench.ToolSys: 3, bench.Written: 7,
	}
	for _, told := range []bool{true, false} {
		samples := &cellSamples{}
		for metric, value := range values {
			if told || metric != bench.Written {
				samples.records = append(samples.records, taggedRecord{Record: &bench.Record{Metric: metric, Value: value, Unit: "s", Rep: 1, Sync: 1}})
			}
		}
		want := Phases{PostSync: 3, Rest: 0.5}
		if !told {
			want = Phases{PostSync: 0, Rest: 3.5}
		}
		p, ok := phasesOf(samples, bench.FullSync)
		p.Total = values[bench.FullSync]
		p.scale()
		sum := p.Plan + p.Encode + p.Jumps + p.ToolUser + p.ToolSys + p.PostSync + p.Rest
		if !ok || math.Abs(p.PostSync-want.PostSync) > 1e-9 || math.Abs(p.Rest-want.Rest) > 1e-9 || math.Abs(sum-p.Total) > 1e-9 {
			t.Errorf("written told %v: %+v, which add up to %v", told, p, sum)
		}
	}
}
