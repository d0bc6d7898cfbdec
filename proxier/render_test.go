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

// The rule that guards loopback, and the counter of NodePort packets there, exist only if NodePorts answer on loopback.
// If no NodePort address is a loopback address, kube-proxy omits both.
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
					t.Errorf("%s: want it in the rules: %t", rule, c.guarded)
				}
			}
		})
	}
}

// A source range that contains the node's address lets the node use the load balancer. The configuration may set that
// address.
func TestBindAddressIsTheNodes(t *testing.T) {
	svc := plainService("svc", "10.96.0.1", 0)
	svc.Spec.Type = corev1.ServiceTypeLoadBalancer
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.18.0.1"}}
	svc.Spec.LoadBalancerSourceRanges = []string{"192.0.2.99/32"}
	for bind, itself := range map[string]bool{"0.0.0.0": false, "192.0.2.99": true, "fd00::99": false} {
		o := Options{Config: config.New()}
		o.Config.BindAddress = bind
		node := &corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.10"}}}}
		o.NodeIPs = config.NodeIPs(o.Config, node)
		models, err := Render(t.Context(), o, []*corev1.Service{svc}, []*discoveryv1.EndpointSlice{plainSlice("svc", "10.128.0.1")}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(saved(t, models[0]), "-s 198.18.0.1/32 "); got != itself {
			t.Errorf("bindAddress %s: the node may use the load balancer: %t", bind, got)
		}
	}
}
