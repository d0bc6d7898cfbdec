package reports

import (
	"strings"
	"testing"

	"synclab/bench/raw"
	"synclab/reports/reportstest"
	"synclab/scenarios"
)

// Memory grows by the changes, after a first quarter that does not count. Growth that the repetitions do not agree on is none.
func TestMemoryOverChanges(t *testing.T) {
	run := func(changes, reps int) string {
		y := reportstest.Recorded{Scenario: scenarios.Scenario{Name: "churn"}, Reps: reps}
		for rep := 1; rep <= reps; rep++ {
			for name, slope := range map[string]float64{"kube-proxy/nftables": 2048, "kube-proxy/iptables-legacy": float64(rep%2*200 - 100)} {
				for i := range 21 {
					made := i * changes / 20
					r := raw.Record{Subject: name, Services: 100, Endpoints: 1, Rep: rep, At: 30, Step: "3:churn", Change: made, Metric: raw.RSS, Unit: "B"}
					if r.Value = 50 << 20; i >= 5 {
						r.Value = 60<<20 + slope*float64(made)
					}
					y.Records = append(y.Records, r)
				}
			}
		}
		for _, section := range buildOf(t, y, t.TempDir(), Options{NoPNG: true}).Sections() {
			if section.ID != "memory" || len(section.Blocks) == 0 {
				continue
			}
			var cells []string
			for _, row := range section.Blocks[0].Table.Rows {
				cells = append(cells, row[0].Text+" "+row[6].Text+" "+row[7].Text)
			}
			return strings.Join(cells, "; ")
		}
		return ""
	}
	const grows = "kube-proxy/nftables 1.95 MiB 1.95 MiB … 1.95 MiB"
	if got := run(400, 6); !strings.Contains(got, grows) || !strings.Contains(got, "kube-proxy/iptables-legacy ~ -97.7 KiB … 97.7 KiB") {
		t.Errorf("%q", got)
	}
	if got := run(400, 3); strings.Contains(got, grows) || !strings.Contains(got, "kube-proxy/nftables ~ range 1.95 MiB … 1.95 MiB") {
		t.Errorf("too few repetitions: %q", got)
	}
	if got := run(60, 6); got != "" {
		t.Errorf("too few changes: %q", got)
	}
}
