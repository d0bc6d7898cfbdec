package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"synclab/bench/raw"
)

// A run's proxies are on the node that the configuration names: only there a Service of traffic to its own node has an endpoint.
func TestRunOnTheChosenNode(t *testing.T) {
	measures(t)
	subjects := available(t, "synclab/iptables-legacy")
	if len(subjects) == 0 {
		t.Skip("no iptables-legacy")
	}
	file := writer(t)
	scenario := file("scenario.yaml", "name: start\ndescription: a start\nshape: {services: 1}\nsteps: [create: {}, settle: {}]\n")
	cluster := file("cluster.yaml", `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: alder}, status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}}
- {apiVersion: v1, kind: Node, metadata: {name: birch}, status: {addresses: [{type: InternalIP, address: 192.0.2.2}]}}
- apiVersion: v1
  kind: Service
  metadata: {name: plum, namespace: orchard}
  spec: {clusterIP: 10.96.0.7, clusterIPs: [10.96.0.7], ports: [{port: 80}], internalTrafficPolicy: Local}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: plum-1, namespace: orchard, labels: {kubernetes.io/service-name: plum}}
  addressType: IPv4
  ports: [{port: 8080}]
  endpoints: [{addresses: [10.244.1.5], nodeName: birch}]
`)
	for node, local := range map[string]bool{"alder": false, "birch": true} {
		config := file(node+".yaml", "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nhostnameOverride: "+node+"\n")
		status, stdout, stderr := invoke(t, "run", scenario, "-f", cluster, "--proxy-config", config, "--reps", "1",
			"--subjects", subjects[0], "--dump-iptables", "--out", filepath.Join(t.TempDir(), node))
		if strings.Contains(stderr, "not available") && os.Getenv("SYNCLAB_REQUIRE_NAMESPACE") == "" {
			t.Skip(stderr)
		}
		if status != exitDone || strings.Contains(stdout, "-j KUBE-SVL-") != local {
			t.Errorf("%s: status %d, traffic to the own node has an endpoint: want %t\n%s%s", node, status, local, stdout, stderr)
		}
	}
}

// A subject that is restarted with another layout writes that layout. Under the race detector: nothing of the previous
// subject process reads the layout.
func TestRestartWithAnotherLayout(t *testing.T) {
	measures(t)
	for _, feed := range []string{raw.FeedAPI, raw.FeedInformers} {
		t.Run(feed, func(t *testing.T) {
			subjects := available(t, "synclab/iptables-legacy")
			if len(subjects) == 0 {
				t.Skip("no iptables-legacy")
			}
			_, records := runScenario(t, "run", "restart", "--services", "50", "--endpoints", "3", "--feed", feed, "--subjects", subjects[0],
				"--set", "steps.restart.layout=tree", "--set", "proxy.minSyncPeriod=100ms")
			rules := map[string]float64{} // rules in nat, by settle step
			for _, r := range records {
				if r.Metric == raw.RulesKernel && r.Table == "nat" {
					rules[r.Step] = r.Value
				}
			}
			if len(rules) != 2 || rules["2:settle"] == 0 || rules["2:settle"] == rules["4:settle"] {
				t.Errorf("rules in nat: %v, want others after the restart", rules)
			}
		})
	}
}
