package records

import (
	"slices"
	"testing"

	"synclab/bench/raw"
	"synclab/reports/estimate"
)

// The last positions of all repetitions are compared, at any place of kube-proxy's rules.
func TestAlignPositions(t *testing.T) {
	packets := func(rep int, positions ...int) []raw.Record {
		var out []raw.Record
		for _, position := range append([]int{0, -1}, positions...) {
			for i := range 3 {
				out = append(out, raw.Record{
					Scenario: "s", Subject: "kube-proxy/iptables-legacy", Services: 100, Rep: rep, Metric: raw.FirstPacket, Unit: "s",
					Value: float64(10*position+i) / 1e9, Position: &position,
				})
			}
		}
		return out
	}
	last := func(records ...[]raw.Record) (estimate.Sample, []int) {
		l := &Run{}
		for _, r := range records {
			l.Records = append(l.Records, r...)
		}
		c := Collect([]*Run{l})
		positions := c.Series[0].Positions(c.Cells[0])
		return c.Series[0].At(c.Cells[0], positions[len(positions)-1]), positions
	}
	sample, positions := last(packets(1, 2, 50, 97), packets(2, 1, 52, 99), packets(3, 3, 49, 95))
	if len(sample) != 3 || len(positions) != 3 || positions[0] != 2 || positions[1] != 50 || positions[2] != 97 {
		t.Errorf("last positions of %d repetitions, positions %v", len(sample), positions)
	}
	// Of repetitions with different numbers of positions, only the ends belong together.
	if sample, positions := last(packets(1, 2, 50, 97), packets(2, 1, 99), packets(3, 3, 40, 60, 90)); len(sample) != 3 || !slices.Equal(positions, []int{1, 40, 50, 60, 99}) {
		t.Errorf("last positions of %d repetitions, positions %v", len(sample), positions)
	}
	// The positions of connections have their own places.
	connections := packets(1, 7, 60, 90)
	for i := range connections {
		connections[i].Metric = raw.ConnectionCPU
	}
	if _, positions := last(packets(1, 2, 50, 97), connections); len(positions) != 3 || positions[2] != 97 {
		t.Errorf("positions %v beside those of connections", positions)
	}
	if sample, positions := last(packets(1, 2, 50), packets(2, 2, 50)); len(sample) != 2 || positions[1] != 50 {
		t.Errorf("equal positions: %v, %d repetitions", positions, len(sample))
	}
}
