package reports

import (
	"math"
	"testing"

	"synclab/bench/raw"
	"synclab/reports/records"
	"synclab/reports/sections"
)

// The phases of a sync add up to the sync. Post-sync work is one of them.
func TestPhasesAddUp(t *testing.T) {
	values := map[raw.Metric]float64{
		raw.FullSync: 10, raw.Plan: 1, raw.Encode: 2, raw.ToolUser: 0.5, raw.ToolSys: 3, raw.Written: 7,
	}
	for _, reported := range []bool{true, false} {
		samples := &records.Samples{}
		for metric, value := range values {
			if reported || metric != raw.Written {
				samples.Records = append(samples.Records, records.Record{Record: &raw.Record{Metric: metric, Value: value, Unit: "s", Rep: 1, Sync: 1}})
			}
		}
		want := sections.Phases{PostSync: 3, Rest: 0.5}
		if !reported {
			want = sections.Phases{PostSync: 0, Rest: 3.5}
		}
		p, ok := sections.PhasesOf(samples, raw.FullSync)
		p.Total = values[raw.FullSync]
		p.Scale()
		sum := p.Plan + p.Encode + p.Jumps + p.ToolUser + p.ToolSys + p.PostSync + p.Rest
		if !ok || math.Abs(p.PostSync-want.PostSync) > 1e-9 || math.Abs(p.Rest-want.Rest) > 1e-9 || math.Abs(sum-p.Total) > 1e-9 {
			t.Errorf("written reported: %v; phases %+v add up to %v", reported, p, sum)
		}
	}
}
