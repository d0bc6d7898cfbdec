package visible

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// The endpoints of a cluster IP are those that the internal traffic policy allows. With IPVS, Local means nothing where no
// endpoint is local.
func TestClusterIPShowsWhatItsPolicyAllows(t *testing.T) {
	name := tracker.ServicePortName{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "a"}, PortKey: tracker.PortKey{Protocol: corev1.ProtocolTCP}}
	for what, c := range map[string]struct{ policyLocal, hasLocal, elsewhere, local bool }{
		"policy Cluster":                   {false, true, false, false},
		"policy Local":                     {true, true, false, true},
		"policy Local, none local":         {true, false, false, true},
		"policy Local, IPVS":               {true, true, true, true},
		"policy Local, none local, IPVS":   {true, false, true, false},
		"policy Cluster, none local, IPVS": {false, false, true, false},
	} {
		t.Run(what, func(t *testing.T) {
			port := &plan.ServicePort{ServicePort: &tracker.ServicePort{Name: name, ClusterIP: netip.MustParseAddr("10.96.0.1"), Port: 80,
				InternalPolicyLocal: c.policyLocal}}
			if c.hasLocal {
				port.Local = []*tracker.Endpoint{{}}
			}
			f := newFrontends()
			f.place(corev1.IPv4Protocol, name, port)
			reader := clusterIPs{frontends: f, elsewhere: c.elsewhere, endpoints: func(place) ([]string, error) { return []string{"10.0.0.1:80"}, nil }}
			s, err := reader.Port(corev1.IPv4Protocol, name)
			if err != nil {
				t.Fatal(err)
			}
			if local := len(s.Local) > 0; local != c.local || s.Hidden.Local == c.local || s.Hidden.Cluster != c.local || len(s.Local)+len(s.Cluster) != 1 {
				t.Errorf("got %+v, want endpoints of this node only: %v", s, c.local)
			}
		})
	}
}
