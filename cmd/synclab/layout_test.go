package main

import (
	"testing"

	"synclab/bench/raw"
)

// A subject that is restarted with another layout writes that layout. Under the race detector: nothing of the previous
// subject process reads the layout.
func TestRestartWithAnotherLayout(t *testing.T) {
	measures(t)
	for _, feed := range []string{raw.FeedAPI, raw.FeedInformers} {
		t.Run(feed, func(t *testing.T) {
			subjects := available(t, "synclab/iptables-legacy")
			if len(subjects) == 0 {
				t.Skip("no iptables-legacy")
			}
			_, records := runScenario(t, "run", "restart", "--services", "50", "--endpoints", "3", "--feed", feed, "--subjects", subjects[0],
				"--set", "steps.restart.layout=tree", "--set", "proxy.minSyncPeriod=100ms")
			rules := map[string]float64{} // rules in nat, by settle step
			for _, r := range records {
				if r.Metric == raw.RulesKernel && r.Table == "nat" {
					rules[r.Step] = r.Value
				}
			}
			if len(rules) != 2 || rules["2:settle"] == 0 || rules["2:settle"] == rules["4:settle"] {
				t.Errorf("rules in nat: %v, want others after the restart", rules)
			}
		})
	}
}
