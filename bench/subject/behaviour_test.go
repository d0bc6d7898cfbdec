package subject

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier"
)

// docs/migrate.md has exactly the behaviours of the table.
func TestBehavioursAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/migrate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| name | iptables | nftables | ipvs | source |\n| --- | --- | --- | --- | --- |\n")
	var want strings.Builder
	for _, b := range Behaviours {
		cell := func(mode proxier.BackendKind) string {
			if b.In[mode] == "" {
				return "–"
			}
			return b.In[mode]
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s | %s | %s |\n", b.ID, cell(proxier.Iptables), cell(proxier.Nftables), cell(IPVS), b.Source)
	}
	if got, _, _ := strings.Cut(table, "\n\n"); strings.TrimSpace(got) != strings.TrimSpace(want.String()) {
		t.Errorf("docs/migrate.md has\n%s\nwant\n%s", got, want.String())
	}
}

// A behaviour counts the Services that it concerns, and only between modes that differ.
func TestBehaviours(t *testing.T) {
	service := func(change func(*corev1.Service)) *corev1.Service {
		s := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Port: 80}}}}
		change(s)
		return s
	}
	services := []*corev1.Service{
		service(func(*corev1.Service) {}),
		service(func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30000 }),
		service(func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }),
		service(func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }),
	}
	for id, want := range map[string]int{
		"nodeport-localhost": 1, "nodeport-addresses": 1, "nodeport-firewall": 1, "local-without-endpoint": 1, "cluster-ip-on-node": 3, "balancing": 4,
		"invalid-packets": 4,
	} {
		b, known := BehaviourOf(id)
		if got := b.Affected(services); !known || got != want {
			t.Errorf("%s concerns %d Services, want %d", id, got, want)
		}
		if b.Differs(proxier.Iptables, proxier.Iptables) {
			t.Errorf("%s differs between a mode and itself", id)
		}
	}
	if len(Behaviours) != 7 {
		t.Errorf("%d behaviours, want 7: complete this test", len(Behaviours))
	}
	b, _ := BehaviourOf("nodeport-localhost")
	if b.Differs(proxier.Nftables, IPVS) || !b.Differs(proxier.Iptables, IPVS) {
		t.Error("nodeport-localhost: want a difference from iptables only")
	}
}
