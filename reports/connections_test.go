package reports

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"synclab/bench/raw"
	"synclab/reports/comparison"
	"synclab/reports/doc"
	"synclab/reports/reportstest"
	"synclab/scenarios"
)

// The table of connections has the first, the middle and the last Service of each subject beside the endpoint. The key figure is
// the inverse of the rate, without connections straight to an endpoint. The plot has a line for each subject.
func TestConnections(t *testing.T) {
	y := reportstest.Recorded{Scenario: scenarios.Scenario{Name: "connections"}, Reps: 6}
	for _, services := range []int{100, 1000} {
		for rep := 1; rep <= y.Reps; rep++ {
			for i, name := range []string{"kube-proxy/nftables", "kube-proxy/iptables-legacy"} {
				for _, position := range []int{0, 1, services / 2, services} {
					walked := float64(i * position)
					of := raw.Record{Subject: name, Services: services, Endpoints: 1, Rep: rep, At: 30, Step: "3:connections", Position: &position}
					if position == 0 {
						of.Position, of.Target = nil, raw.TargetEndpoint
						walked = -100 // what the Service itself costs
					}
					for metric, value := range map[raw.Metric]float64{raw.ConnectionsPerSecond: 8000 - walked, raw.ConnectionCPU: 100e-6 + walked*1e-8, raw.Throughput: 1 << 30} {
						of.Metric, of.Value, of.Unit = metric, value, metric.Row().Unit
						y.Records = append(y.Records, of)
					}
				}
			}
		}
	}
	dir := t.TempDir()
	s := buildOf(t, y, dir, Options{NoPNG: true})
	var rows []string
	for _, section := range s.Sections() {
		for _, block := range section.Blocks {
			if section.ID == "connections" && block.Table != nil {
				for _, row := range block.Table.Rows {
					rows = append(rows, strings.Join(slices.Collect(func(yield func(string) bool) {
						for _, cell := range row {
							yield(strings.TrimSuffix(cell.Text, " ± 0 %"))
						}
					}), "|"))
				}
			}
		}
	}
	want := []string{
		"kube-proxy/nftables|100|1||8,000|8,000|8,000|8,100|100 µs|100 µs|99.0 µs|1.00 GiB|1.00 GiB",
		"kube-proxy/iptables-legacy|100|1||7,999|7,950|7,900|8,100|100 µs|101 µs|99.0 µs|1.00 GiB|1.00 GiB",
		"kube-proxy/nftables|1,000|1||8,000|8,000|8,000|8,100|100 µs|100 µs|99.0 µs|1.00 GiB|1.00 GiB",
		"kube-proxy/iptables-legacy|1,000|1||7,999|7,500|7,000|8,100|100 µs|110 µs|99.0 µs|1.00 GiB|1.00 GiB",
	}
	if !slices.Equal(rows, want) {
		t.Errorf("rows\n%s\nwant\n%s", strings.Join(rows, "\n"), strings.Join(want, "\n"))
	}
	c := s.LargestComparison()
	for figure, value := range map[string]string{comparison.FigureConnection: "133 µs", comparison.FigureConnCPU: "105 µs"} {
		if got := c.SideOf("kube-proxy/iptables-legacy").Figure(figure); got == nil || doc.Format(got.Value, "s") != value {
			t.Errorf("%s: %+v, want %s", figure, got, value)
		}
	}
	plot, err := os.ReadFile(filepath.Join(dir, "connections-vs-services.svg"))
	if err != nil || !strings.Contains(string(plot), "kube-proxy/iptables-legacy") {
		t.Errorf("plot: %v", err)
	}
}
