package bench

import (
	"slices"
	"testing"

	"synclab/bench/raw"
)

// Connections through Services and straight to an endpoint, in both families: the turn of each destination has a rate,
// CPU time, and bytes. UDP Services are no destinations.
func TestConnections(t *testing.T) {
	tr := newTrial(t, "connections", 30, "sweep=[]", "shape.families=[IPv4,IPv6]", "shape.protocols.UDP=0.5", "steps.connections.for=60ms", "steps.connections.clients=2")
	tr.options.Subjects = slices.DeleteFunc(tr.options.Subjects, func(name string) bool {
		return name != "synclab/iptables-legacy" && name != "synclab/nftables"
	})
	tr.options.Feed = raw.FeedInformers // this test binary is no proxy
	tr.mustExecute()
	for _, subject := range tr.options.Subjects {
		for _, metric := range []raw.Metric{raw.ConnectionsPerSecond, raw.ConnectionCPU, raw.Throughput} {
			n := map[place]int{}
			for _, r := range tr.of(subject, metric) {
				if n[placeOf(r)]++; r.Value <= 0 || (r.Target == raw.TargetEndpoint) != (r.Position == nil) {
					t.Errorf("%s: %+v", subject, r)
				}
			}
			if len(n) != 2*4 {
				t.Errorf("%s: %s of %d destinations, want 3 Services and an endpoint in 2 families", subject, metric, len(n))
			}
			for at, got := range n {
				if got != 1 {
					t.Errorf("%s: %s of %+v: %d turns", subject, metric, at, got)
				}
			}
		}
	}
}
