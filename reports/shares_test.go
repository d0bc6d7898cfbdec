package reports

import (
	"strings"
	"testing"

	"synclab/bench/raw"
	"synclab/reports/reportstest"
	"synclab/scenarios"
)

// Endpoints with unequal shares are a difference that nothing explains, whatever the reference does. Shares that chance explains
// are none, also in many Services, and neither are those of a round robin.
func TestUnequalShares(t *testing.T) {
	unexplained := func(services int, shares ...float64) (int, string) {
		y := reportstest.Recorded{Scenario: scenarios.Scenario{Name: "verdicts"}, Reps: 1}
		for _, subject := range []string{"kube-proxy/nftables", "kube-proxy/iptables-legacy"} {
			of := raw.Record{Subject: subject, Services: services, Endpoints: 3, Rep: 1, At: 30, Step: "3:probe", Family: "IPv4", Protocol: "TCP", Unit: "count"}
			for i := range services {
				of.Service, of.Metric, of.Target, of.Method, of.Value, of.Outcome = "ns/s"+strings.Repeat("x", i), raw.PacketVerdict, "cluster-ip", "pod", 3, "answered"
				y.Records = append(y.Records, of)
				of.Metric, of.Target, of.Method, of.Outcome = raw.EndpointShare, "", "", ""
				for _, share := range shares {
					if of.Value = share; subject == "kube-proxy/nftables" || i > 0 {
						of.Value = 1000 / float64(len(shares))
					}
					y.Records = append(y.Records, of)
				}
			}
		}
		s := buildOf(t, y, t.TempDir(), Options{NoPNG: true})
		for _, section := range s.Sections() {
			if section.ID == "answers" {
				return s.PacketAnswers().Unexplained, section.Blocks[0].Note
			}
		}
		return -1, ""
	}
	for _, test := range []struct {
		services int
		shares   []float64
		want     int
	}{
		{10, []float64{343, 340, 317}, 0},
		{10, []float64{334, 333, 333}, 0},
		{10, []float64{400, 300, 300}, 1},
		{10, []float64{500, 500, 0}, 1},  // an endpoint that no packet reaches
		{1, []float64{375, 320, 305}, 0}, // p = 0.015
		{1, []float64{390, 310, 300}, 1}, // p = 0.0005, which chance explains among ten Services
		{10, []float64{390, 310, 300}, 0},
	} {
		got, note := unexplained(test.services, test.shares...)
		if got != test.want || !strings.Contains(note, "Shares of endpoints were tested for ") {
			t.Errorf("%v in %d Services: %d unexplained, want %d: %s", test.shares, test.services, got, test.want, note)
		}
	}
}
