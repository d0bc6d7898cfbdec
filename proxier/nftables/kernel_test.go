package nftables

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/bench/lab/netns"
	"synclab/proxier/backend"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

func TestMain(m *testing.M) { os.Exit(netns.TestMain(m)) }

var plainSettings = backend.Settings{
	Family: corev1.IPv4Protocol, MasqueradeBit: 14, Local: backend.Local{Source: netip.MustParsePrefix("11.0.0.0/8")}, RandomFully: true, DropInvalid: true,
}

func clusterPort(i, n int) *plan.ServicePort {
	p := &plan.ServicePort{
		ServicePort: &tracker.ServicePort{
			Name:      tracker.ServicePortName{NamespacedName: types.NamespacedName{Namespace: "ns", Name: fmt.Sprintf("svc-%06d", i)}, PortKey: tracker.PortKey{Name: "p", Protocol: corev1.ProtocolTCP}},
			ClusterIP: netip.AddrFrom4([4]byte{10, 96 + byte(i>>16), byte(i >> 8), byte(i)}),
			Port:      80,
		},
		Created:      time.Unix(1000, 0),
		HasEndpoints: true,
	}
	for j := range n {
		p.Cluster = append(p.Cluster, endpoint(i*n+j))
	}
	p.Reachable = p.Cluster
	return p
}

func endpoint(k int) *tracker.Endpoint {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(k))
	b[0] += 11
	a := netip.AddrPortFrom(netip.AddrFrom4(b), 8080)
	return &tracker.Endpoint{Addr: a, Text: a.String(), Ready: true, Serving: true}
}
