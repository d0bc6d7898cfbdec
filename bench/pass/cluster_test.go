package pass

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/bench/internal/rigtest"
	"synclab/proxier/config"
	"synclab/proxier/iptables"
	"synclab/scenarios"
)

// The closed form reports which rules it cannot predict. One family may have no pod range.
func TestClosedForms(t *testing.T) {
	const services = 3
	objects := rigtest.World(t, scenarios.Shape{Services: services}).Objects()
	no := false
	// The shared chains' rules, and for each Service a dispatch rule and three for each endpoint.
	without := 5 + services*(1+3*rigtest.Endpoints)
	for name, c := range map[string]struct {
		change func(*v1alpha1.KubeProxyConfiguration)
		nat    int // 0: does not apply
	}{
		"pods' range":          {func(c *v1alpha1.KubeProxyConfiguration) { c.ClusterCIDR = "fd00:10:128::/64,10.128.0.0/9" }, without + services},
		"of the other family":  {func(c *v1alpha1.KubeProxyConfiguration) { c.ClusterCIDR = "fd00:10:128::/64" }, without},
		"none":                 {func(*v1alpha1.KubeProxyConfiguration) {}, without},
		"masqueradeAll":        {func(c *v1alpha1.KubeProxyConfiguration) { c.IPTables.MasqueradeAll = true }, without + services},
		"no NodePort on lo":    {func(c *v1alpha1.KubeProxyConfiguration) { c.IPTables.LocalhostNodePorts = &no }, 0},
		"NodePort addresses":   {func(c *v1alpha1.KubeProxyConfiguration) { c.NodePortAddresses = []string{"10.0.0.0/8"} }, 0},
		"liberal":              {func(c *v1alpha1.KubeProxyConfiguration) { c.Conntrack.TCPBeLiberal = true }, 0},
		"another detect-local": {func(c *v1alpha1.KubeProxyConfiguration) { c.DetectLocalMode = config.LocalModeNodeCIDR }, 0},
	} {
		cfg := config.New()
		c.change(cfg)
		forms, applies := ClosedForms(objects, []corev1.IPFamily{corev1.IPv4Protocol}, cfg)
		if got := forms[corev1.IPv4Protocol][iptables.NAT]; applies != (c.nat > 0) || got != c.nat {
			t.Errorf("%s: applies %v, %d rules in nat; want %d", name, applies, got, c.nat)
		}
	}
}
