package walk

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// lots returns a Service whose chain chooses among endpoints at random; the chains of endpoints have the given rules.
func lots(endpoints int, rules ...string) string {
	var b strings.Builder
	b.WriteString("*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:SVC - [0:0]\n")
	for i := range endpoints {
		fmt.Fprintf(&b, ":SEP-%d - [0:0]\n", i)
	}
	b.WriteString("-A OUTPUT -d 10.96.0.1/32 -p udp -m udp --dport 80 -j SVC\n")
	for i := range endpoints {
		if left := endpoints - i; left > 1 {
			fmt.Fprintf(&b, "-A SVC -m statistic --mode random --probability %.10f -j SEP-%d\n", 1/float64(left), i)
		} else {
			fmt.Fprintf(&b, "-A SVC -j SEP-%d\n", i)
		}
		for _, rule := range rules {
			fmt.Fprintf(&b, "-A SEP-%d %s\n", i, strings.ReplaceAll(rule, "ENDPOINT", fmt.Sprintf("10.0.0.%d:8080", i+1)))
		}
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

// The paths of a packet branch and join again, as many times as there are endpoints: it is still one packet. A chain of
// an endpoint may return the packet, as an empty one does. That costs one rule and does not double the number of paths.
func TestWaysThatMeetAgain(t *testing.T) {
	for _, c := range []struct {
		name     string
		rules    []string
		outcomes int
		crossed  int
	}{
		{"whole", []string{"-p udp -m udp -j DNAT --to-destination ENDPOINT"}, 60, 1 + 60 + 1},
		{"empty", nil, 1, 1 + 60},
		{"marking", []string{"-j MARK --set-xmark 0x4000/0x4000"}, 1, 1 + 60 + 60},
	} {
		t.Run(c.name, func(t *testing.T) {
			rules, err := ParseIptables(corev1.IPv4Protocol, []byte(lots(60, c.rules...)))
			if err != nil {
				t.Fatal(err)
			}
			v, err := New(rules, NodeAddresses{}).Walk(&Packet{Protocol: UDP, Source: netip.MustParseAddrPort("192.0.2.1:40000"), Destination: netip.MustParseAddrPort("10.96.0.1:80")})
			if err != nil {
				t.Fatal(err)
			}
			sum := 0.0
			for _, o := range v.Outcomes {
				sum += o.Probability
			}
			if len(v.Outcomes) != c.outcomes || v.Crossed.Total != c.crossed || math.Abs(sum-1) > 1e-9 {
				t.Errorf("%d outcomes of probability %v, %d rules crossed, want %d of 1, %d", len(v.Outcomes), sum, v.Crossed.Total, c.outcomes, c.crossed)
			}
		})
	}
}
