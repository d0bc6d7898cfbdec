package main

import (
	"testing"

	"synclab/bench"
)

// A subject that is started again with another layout writes that one. Under the race detector: nothing that belongs to
// the subject before reads what says the layout.
func TestRestartWithAnotherLayout(t *testing.T) {
	for _, feed := range []string{bench.FeedAPI, bench.FeedInformers} {
		t.Run(feed, func(t *testing.T) {
			subjects := available(t, "synclab/iptables-legacy")
			if len(subjects) == 0 {
				t.Skip("no iptables-legacy")
			}
			_, records := runScenario(t, "run", "restart", "--services", "50", "--endpoints", "3", "--feed", feed, "--subjects", subjects[0],
				"--set", "steps.restart.layout=tree", "--set", "proxy.minSyncPeriod=100ms")
			rules := map[string]float64{} // of nat, by settle step
			for _, r := range records {
				if r.Metric == bench.RulesKernel && r.Table == "nat" {
					rules[r.Step] = r.Value
				}
			}
			if len(rules) != 2 || rules["2:settle"] == 0 || rules["2:settle"] == rules["4:settle"] {
				t.Errorf("rules in nat: %v, want others after the restart", rules)
			}
		})
	}
}
