package reports

import (
	"strings"
	"testing"

	"synclab/bench/raw"
	"synclab/reports/reportstest"
	"synclab/scenarios"
)

// How long other programs waited is in the report by tool and by step, and in the comparison.
func TestNeighbours(t *testing.T) {
	y := reportstest.StreamRun(reportstest.StreamModels[1:3], 2, 1, 200, 1)
	y.Records = nil
	for i, subject := range []string{"kube-proxy/iptables-legacy", "kube-proxy/nftables"} {
		wait := 0.25 * float64(i+1)
		for step, times := range map[string]float64{"3:churn": 1, "4:settle": 0.1} {
			for _, tool := range []string{raw.MethodIptables, raw.MethodNft} {
				rec := raw.Record{Subject: subject, Services: 10, Endpoints: 2, Rep: 1, Metric: raw.WriterWait, Unit: "s", Step: step, Kind: raw.WaitsForCommit, Method: tool}
				if rec.Value = wait * times; tool == raw.MethodNft {
					rec.Value /= 50
				}
				if step == "3:churn" && tool == raw.MethodIptables {
					rec.Outcome = raw.WriteFailed
				}
				y.Records = append(y.Records, rec)
			}
		}
	}
	dir := t.TempDir()
	b := buildOf(t, y, dir, Options{NoPNG: true})
	_, markdown := outputs(t, dir, b)
	for _, want := range []string{
		"| iptables | commit | 2 | 1 | 275 ms | 496 ms | 500 ms |",           // all steps of kube-proxy/nftables
		"| 4:settle | nft | commit | 1 | 0 | 1.00 ms | 1.00 ms | 1.00 ms |",  // one step
		"| 3:churn | iptables | commit | 1 | 1 | 250 ms | 250 ms | 250 ms |", // one of the other subject
		"| 500 ms (observed 2.0× longer) | 10.0 ms (observed 2.0× longer) |", // the comparison: the longest with each tool
	} {
		if !strings.Contains(markdown, want) {
			t.Errorf("no %q in\n%s", want, markdown)
		}
	}
}

// The syncs of each step are shown beside what fault foreign put there, until it is cleared.
func TestSyncsBesideForeignObjects(t *testing.T) {
	y := reportstest.StreamRun(reportstest.StreamModels[2:3], 2, 1, 200, 1)
	y.Scenario.Steps = []scenarios.Step{
		{Create: &scenarios.Create{}}, {Fault: &scenarios.Fault{Kind: scenarios.FaultForeign, Elements: 7, Rules: 20}},
		{Churn: &scenarios.Churn{}}, {Fault: &scenarios.Fault{Kind: scenarios.FaultClear}}, {Settle: &scenarios.Settle{}},
	}
	y.Records = nil
	for step, value := range map[string]float64{"1:create": 1, "3:churn": 2, "5:settle": 3} {
		for metric, of := range map[raw.Metric]float64{raw.FullSync: 1, raw.PartialSync: 0.001} {
			y.Records = append(y.Records, raw.Record{Subject: "kube-proxy/nftables", Services: 10, Endpoints: 2, Rep: 1, Metric: metric, Unit: "s", Step: step, Value: value * of})
		}
	}
	dir := t.TempDir()
	_, markdown := outputs(t, dir, buildOf(t, y, dir, Options{NoPNG: true}))
	for _, want := range []string{"| 1:create | – | 1.00 s | 1.00 ms |", "| 3:churn | 7 elements, 20 rules | 2.00 s | 2.00 ms |", "| 5:settle | – | 3.00 s | 3.00 ms |"} {
		if !strings.Contains(markdown, want) {
			t.Errorf("no %q in\n%s", want, markdown)
		}
	}
}
