package reports

import (
	"strings"
	"testing"

	"synclab/bench/raw"
	"synclab/reports/reportstest"
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
