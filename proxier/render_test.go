package proxier

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/proxier/config"
)

// Loopback is guarded, and what reaches NodePorts there is counted, only where NodePorts answer there: with addresses
// for NodePorts of which none is a loopback address, kube-proxy lets both be.
func TestLoopbackGuardFollowsNodePortAddresses(t *testing.T) {
	svc := plainService("svc", "10.96.0.1", 0)
	svc.Spec.Type, svc.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30000
	slice := plainSlice("svc", "10.128.0.1")
	for _, c := range []struct {
		addresses []string
		guarded   bool
	}{
		{nil, true}, {[]string{"primary"}, false}, {[]string{"192.0.2.0/24"}, false}, {[]string{"127.0.0.1/32"}, true},
		{[]string{"192.0.2.0/24", "0.0.0.0/0"}, true}, {[]string{"fd00::/8"}, true},
	} {
		t.Run(fmt.Sprint(c.addresses), func(t *testing.T) {
			o := Options{Config: config.New(), NodeIPs: []netip.Addr{netip.MustParseAddr("192.0.2.10")}, Machine: Machine{Accounting: true}}
			o.Config.NodePortAddresses = c.addresses
			models, err := Render(t.Context(), o, []*corev1.Service{svc}, []*discoveryv1.EndpointSlice{slice}, nil)
			if err != nil {
				t.Fatal(err)
			}
			var text bytes.Buffer
			if err := models[0].Save(&text); err != nil {
				t.Fatal(err)
			}
			for _, rule := range []string{"block incoming localnet connections", "localhost_nps_accepted_pkts"} {
				if strings.Contains(text.String(), rule) != c.guarded {
					t.Errorf("%s: want it there: %t", rule, c.guarded)
				}
			}
		})
	}
}
