package socketlb

import "testing"

// The control plane has the maps of Services. Others belong to the programs.
func TestSharedMaps(t *testing.T) {
	for name, want := range map[string]bool{
		"cilium_lb4_services_v2": true, "cilium_lb6_backends_v3": true, "cilium_lb_affinity_match": true, "cilium_lb4_reverse_sk": true,
		"cilium_skip_lb6": true, "cilium_lb4_health": false, "cilium_lb_act": false, "cilium_ipcache_v2": false, ".rodata.config": false,
	} {
		if got := shared(name); got != want {
			t.Errorf("%s: shared %v, want %v", name, got, want)
		}
	}
}
