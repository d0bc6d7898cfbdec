package bench

import (
	"testing"

	"synclab/bench/internal/rigtest"
	"synclab/bench/lab/netns"
	"synclab/bench/raw"
	"synclab/scenarios"
)

// Benchmarks write the rules that a run writes.
func TestBenchmarksWriteTheRulesOfRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	const services = 30
	tr := newTrial(t, "cold-start", services)
	tr.options.Scenario.Shape.Endpoints.Count = rigtest.Endpoints
	tr.mustExecute()
	for _, name := range tr.options.Subjects {
		about := tr.about(name)
		if lacks(about, raw.Rules) {
			continue
		}
		want := map[string]float64{} // by table, as at the end
		for _, r := range tr.of(name, raw.Rules) {
			want[r.Table] = r.Value
		}
		t.Run(name, func(t *testing.T) {
			netns.Fresh(t)
			r := rigtest.New(t, rigtest.World(t, scenarios.Shape{Services: services}), about, nil)
			r.Sync(t)
			got := map[string]float64{}
			for table, count := range r.Last.Installed {
				got[string(table)] += float64(count.Rules)
			}
			for table, rules := range want {
				if got[table] != rules {
					t.Errorf("table %s: %v rules, and %v in a run", table, got[table], rules)
				}
			}
			if len(want) == 0 {
				t.Error("the run has no rules")
			}
		})
	}
}
