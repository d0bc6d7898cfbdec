package reportstest

import (
	"fmt"
	"math"

	"synclab/bench/raw"
	"synclab/reports/doc"
)

// Subjects of a comparison over the fake API server. The figures are invented; only their order is realistic.
var (
	ProxyLegacy   = Subject{"kube-proxy/iptables-legacy", 2.4e-4, 1.2, 1.4e-4, 3e-9, 0.04}
	ProxyNft      = Subject{"kube-proxy/iptables-nft", 4e-6, 2.1, 3.1e-5, 6e-9, 0.05}
	ProxyNftables = Subject{"kube-proxy/nftables", 1e-4, 1.3, 8e-4, 1e-11, 0.04}
)

// Five is a run of five subjects, one of which is stopped at the largest size in every repetition.
var Five = Run{ID: "compare", Scenario: "steady-churn", Subjects: []Subject{Legacy, NFT, ProxyLegacy, ProxyNft, ProxyNftables},
	Sizes: []int{2000}, Reps: 8, Churn: 120, Probe: 40, Outside: true}

func FiveSizes() Run {
	y := Five
	y.ID, y.Scenario, y.Sizes, y.Reps, y.Churn = "compare-sizes", "size-sweep", []int{500, 2000, 8000}, 6, 80
	y.StopAt = 600
	return y
}

// fromOutside writes the measurements of a subject in a separate process. It reports whether the subject was stopped.
func (w *syntheticWriter) fromOutside(s Subject) (stopped bool) {
	n := float64(w.cell.Services)
	cold := 0.4 + w.noisy(s, s.Base*math.Pow(n, s.Exponent)*1.1)
	for range 5 {
		w.put(0.2, raw.ShimCost, 4e-4*math.Exp(0.2*w.random.NormFloat64()), "s", raw.Record{Step: "1:create"})
	}
	if w.y.StopAt > 0 && cold > w.y.StopAt {
		w.put(w.y.StopAt, raw.Exceeded, w.y.StopAt, "s", raw.Record{Step: "1:create",
			Error: fmt.Sprintf("stopped after 10m0s: %s of %s Services visible", doc.Grouped(int64(n*w.y.StopAt/cold)), doc.Grouped(int64(n)))})
		w.put(w.y.StopAt, raw.PeakRSS, 9e7+3e4*n, "B", raw.Record{})
		return true
	}
	for i := range 4 {
		w.put(cold+float64(1+i), raw.Reaction, (0.004+s.partial*n)*(1+0.02*float64(i)+0.01*float64(w.cell.Rep)), "s", raw.Record{Step: "2:react"})
	}
	w.put(cold, raw.ColdStart, cold, "s", raw.Record{Step: "1:create"})
	for _, share := range []int{1, 10, 25, 50, 75, 90, 99} {
		w.put(cold, raw.ColdStartShare, cold*(0.5+0.005*float64(share)), "s", raw.Record{Step: "1:create", Share: share})
	}
	w.put(cold, raw.SubjectCPU, w.noisy(s, 0.8*cold), "s", raw.Record{Step: "1:create"})
	w.put(cold+9, raw.SubjectCPU, float64(w.y.Churn)*w.noisy(s, 2e-3+s.partial*n/20), "s", raw.Record{Step: "2:churn"})
	w.put(cold+9, raw.ToolCalls, 2, "count", raw.Record{Step: "2:churn"})
	return false
}
