package subject

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/ptr"

	"synclab/proxier"
	"synclab/proxier/config"
	"synclab/scenarios"
	"synclab/sim"
)

// Where a field has its effect.
const (
	inRules = "in the rules" // also in the file that a subject gets
	inFile  = "in the file"  // that a subject gets, and that 'synclab proxy' reads
	noted   = "noted"        // a note names the field
	ofLab   = "of the lab"   // the lab sets it for its namespaces, and a note names it
	node    = "the node"     // on which proxies run
)

// unusual has for each field of a KubeProxyConfiguration an unusual value, with what else that needs, and where it has its
// effect.
var unusual = []struct{ field, yaml, effect string }{
	{"featureGates", "featureGates: {SomeGate: true}", noted},
	{"clientConnection.kubeconfig", "clientConnection: {kubeconfig: /some/where}", ofLab},
	{"clientConnection.acceptContentTypes", "clientConnection: {acceptContentTypes: application/json}", inFile},
	{"clientConnection.contentType", "clientConnection: {contentType: application/json}", inFile},
	{"clientConnection.qps", "clientConnection: {qps: 77}", inFile},
	{"clientConnection.burst", "clientConnection: {burst: 78}", inFile},
	{"logging.format", "logging: {format: json}", noted},
	{"logging.flushFrequency", "logging: {flushFrequency: 9s}", noted},
	{"logging.verbosity", "logging: {verbosity: 3}", inFile},
	{"logging.vmodule", "logging: {vmodule: [{filePattern: proxier, verbosity: 5}]}", noted},
	{"logging.options", "featureGates: {LoggingAlphaOptions: true}\nlogging: {options: {text: {splitStream: true}}}", noted},
	{"hostnameOverride", "hostnameOverride: birch", node},
	{"bindAddress", "bindAddress: 192.0.2.77\nnodePortAddresses: [primary]", inRules},
	{"healthzBindAddress", "healthzBindAddress: 127.0.0.1:7001", ofLab},
	{"metricsBindAddress", "metricsBindAddress: 127.0.0.1:7002", ofLab},
	{"bindAddressHardFail", "bindAddressHardFail: true", inFile},
	{"enableProfiling", "enableProfiling: true", noted},
	{"showHiddenMetricsForVersion", "showHiddenMetricsForVersion: '1.36'", noted},
	{"mode", "mode: nftables", noted},
	{"iptables.masqueradeBit", "iptables: {masqueradeBit: 3}", inRules},
	{"iptables.masqueradeAll", "iptables: {masqueradeAll: true}", inRules},
	{"iptables.localhostNodePorts", "iptables: {localhostNodePorts: false}", inRules},
	{"iptables.syncPeriod", "iptables: {syncPeriod: 71s}", inFile},
	{"iptables.minSyncPeriod", "iptables: {minSyncPeriod: 7s}", inFile},
	{"ipvs.syncPeriod", "ipvs: {syncPeriod: 72s}", inFile},
	{"ipvs.minSyncPeriod", "ipvs: {minSyncPeriod: 8s}", inFile},
	{"ipvs.scheduler", "ipvs: {scheduler: sh}", noted},
	{"ipvs.excludeCIDRs", "ipvs: {excludeCIDRs: [192.0.2.0/24]}", noted},
	{"ipvs.strictARP", "ipvs: {strictARP: true}", noted},
	{"ipvs.tcpTimeout", "ipvs: {tcpTimeout: 5s}", noted},
	{"ipvs.tcpFinTimeout", "ipvs: {tcpFinTimeout: 5s}", noted},
	{"ipvs.udpTimeout", "ipvs: {udpTimeout: 5s}", noted},
	{"nftables.masqueradeBit", "mode: nftables\nnftables: {masqueradeBit: 5}", inRules},
	{"nftables.masqueradeAll", "mode: nftables\nnftables: {masqueradeAll: true}", inRules},
	{"nftables.syncPeriod", "mode: nftables\nnftables: {syncPeriod: 73s}", inFile},
	{"nftables.minSyncPeriod", "mode: nftables\nnftables: {minSyncPeriod: 8s}", inFile},
	{"winkernel.networkName", "winkernel: {networkName: net}", noted},
	{"winkernel.sourceVip", "winkernel: {sourceVip: 192.0.2.1}", noted},
	{"winkernel.enableDSR", "winkernel: {enableDSR: true}", noted},
	{"winkernel.rootHnsEndpointName", "winkernel: {rootHnsEndpointName: end}", noted},
	{"winkernel.forwardHealthCheckVip", "winkernel: {forwardHealthCheckVip: true}", noted},
	{"detectLocalMode", "detectLocalMode: NodeCIDR", inRules},
	{"detectLocal.bridgeInterface", "detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cbr7}", inRules},
	{"detectLocal.interfaceNamePrefix", "detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: eni}", inRules},
	{"clusterCIDR", "clusterCIDR: 10.77.0.0/16", inRules},
	{"nodePortAddresses", "nodePortAddresses: [198.51.100.0/24]", inRules},
	{"oomScoreAdj", "oomScoreAdj: -7", noted},
	{"conntrack.maxPerCore", "conntrack: {maxPerCore: 7}", ofLab},
	{"conntrack.min", "conntrack: {min: 7}", ofLab},
	{"conntrack.tcpEstablishedTimeout", "conntrack: {tcpEstablishedTimeout: 7m}", inFile},
	{"conntrack.tcpCloseWaitTimeout", "conntrack: {tcpCloseWaitTimeout: 7m}", inFile},
	{"conntrack.tcpBeLiberal", "conntrack: {tcpBeLiberal: true}", inRules},
	{"conntrack.udpTimeout", "conntrack: {udpTimeout: 7s}", inFile},
	{"conntrack.udpStreamTimeout", "conntrack: {udpStreamTimeout: 7s}", inFile},
	{"configSyncPeriod", "configSyncPeriod: 7m", inFile},
	{"portRange", "portRange: 1-2", noted},
	{"windowsRunAsService", "windowsRunAsService: true", noted},
}

// leaves returns the paths of a type's fields, down to maps, lists and the structs of other modules than kube-proxy's.
func leaves(t reflect.Type, path string) (all []string) {
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || f.Anonymous || name == "kind" || name == "apiVersion" {
			continue
		}
		inside := path == "" && f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[metav1.Duration]()
		if name = strings.TrimPrefix(path+"."+name, "."); inside {
			all = append(all, leaves(f.Type, name)...)
		} else {
			all = append(all, name)
		}
	}
	return all
}

// No setting is ignored silently: every field of a KubeProxyConfiguration has its effect, or a note names it.
func TestEveryFieldHasItsEffect(t *testing.T) {
	var listed []string
	for _, c := range unusual {
		listed = append(listed, c.field)
	}
	if fields := leaves(reflect.TypeFor[v1alpha1.KubeProxyConfiguration](), ""); !slices.Equal(slices.Sorted(slices.Values(fields)), slices.Sorted(slices.Values(listed))) {
		t.Fatalf("fields %v\nlisted %v", fields, listed)
	}
	for _, c := range unusual {
		t.Run(c.field, func(t *testing.T) {
			text := "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n" + c.yaml + "\n"
			cfg, notes, err := config.Parse("proxy.yaml", []byte(text), config.LoadOptions{Strict: true, Minor: 37})
			if err != nil {
				t.Fatal(err)
			}
			changed := strings.Join(config.Changed(cfg), " ")
			if !strings.Contains(changed, c.field) {
				t.Fatalf("it does not set the field: %s", changed)
			}
			section, _, _ := strings.Cut(c.field, ".")
			subjects := map[string]string{"iptables": "iptables-nft", "ipvs": "ipvs", "nftables": "nftables"}
			mode := subjects[section]
			if mode == "" {
				mode = "iptables-nft"
			}
			run := ProxyConfig(cfg, &scenarios.Scenario{}, false)
			more, err := CheckConfig(cfg, run, []string{"kube-proxy/" + mode}, "v1.37.2")
			if err != nil {
				t.Fatal(err)
			}
			named := strings.Contains(strings.Join(append(notes, more...), "\n"), c.field)
			spec, err := Parse("kube-proxy/" + mode)
			if err != nil {
				t.Fatal(err)
			}
			file := spec.ForProcess(run, Process{Node: "alder", Kubeconfig: "k", Metrics: "127.0.0.1:10249", Health: "127.0.0.1:10256"})
			arrives := !slices.ContainsFunc(config.Differing(file, cfg), func(f string) bool { return f == c.field || strings.HasPrefix(f, c.field+".") })
			lost := c.effect == ofLab || c.field == "mode" || c.field == "hostnameOverride"
			if arrives == lost {
				t.Errorf("in the file of %s: %v, differing: %v", spec.Name, arrives, config.Differing(file, cfg))
			}
			if want := c.effect == noted || c.effect == ofLab; named != want {
				t.Errorf("named in a note %v, want %v: %q", named, want, append(notes, more...))
			}
			if got := rulesOf(t, cfg) != rulesOf(t, config.New()); got != (c.effect == inRules) {
				t.Errorf("other rules %v, effect %s", got, c.effect)
			}
			if got := nodeOf(t, cfg); (got == "birch") != (c.effect == node) {
				t.Errorf("proxies run on %s", got)
			}
		})
	}
}

// nodeOf returns the node on which proxies run.
func nodeOf(t *testing.T, cfg *v1alpha1.KubeProxyConfiguration) string {
	t.Helper()
	o := &sim.Objects{Nodes: []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "alder"}}, {ObjectMeta: metav1.ObjectMeta{Name: "birch"}}}}
	if cfg.HostnameOverride != "" {
		if err := ChooseNode(o, cfg.HostnameOverride); err != nil {
			t.Fatal(err)
		}
	}
	return o.Nodes[0].Name
}

// rulesOf returns the rules of Synclab's own proxier, in the modes that it has, on a node with a NodePort Service.
func rulesOf(t *testing.T, cfg *v1alpha1.KubeProxyConfiguration) string {
	t.Helper()
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"},
			Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30080}}},
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.128.0.5"}}},
	}
	machine := &corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.4"}}}}
	models, err := proxier.Render(t.Context(), proxier.Options{
		Config: cfg, NodeIPs: config.NodeIPs(cfg, machine), PodCIDRs: []string{"10.128.0.0/24"},
	}, []*corev1.Service{svc}, []*discoveryv1.EndpointSlice{slice}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, m := range models {
		fmt.Fprintln(&b, m.Family())
		if err := m.Save(&b); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}
