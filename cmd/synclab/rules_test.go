package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The exact rules of clusters that articles describe. want has the parts that the articles show.
func TestRulesGolden(t *testing.T) {
	for _, c := range []struct {
		name string
		want []string
	}{
		{"ngx", []string{
			`-A KUBE-SERVICES -d 10.43.120.124/32 -p tcp -m comment --comment "default/ngx-svc cluster IP" -m tcp --dport 80 -j KUBE-SVC-DQYKF4NVSQPF2JO7`,
			`-A KUBE-SVC-DQYKF4NVSQPF2JO7 -m comment --comment "default/ngx-svc -> 10.42.0.148:80" -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-WHP752REJFIVTA3A`,
			`-A KUBE-SVC-DQYKF4NVSQPF2JO7 -m comment --comment "default/ngx-svc -> 10.42.0.149:80" -j KUBE-SEP-KOUJFWPU7NB2K4H6`,
			`-A KUBE-SEP-WHP752REJFIVTA3A -p tcp -m comment --comment "default/ngx-svc" -m tcp -j DNAT --to-destination 10.42.0.148:80`,
			`-A KUBE-SEP-KOUJFWPU7NB2K4H6 -s 10.42.0.149/32 -m comment --comment "default/ngx-svc" -j KUBE-MARK-MASQ`,
		}},
		{"whoami", []string{
			// One in three, then one in two, then the last.
			"--probability 0.33333333349 -j KUBE-SEP-EQRD2OJ2I333TJKC", "--probability 0.50000000000 -j KUBE-SEP-PQF2VA7CMJPSCHSY",
			`"default/whoami -> 10.16.192.3:3000" -j KUBE-SEP-OJOAXDC7LLQXKPDD`,
		}},
		{"nginx-demo", []string{
			`-A KUBE-SERVICES -d 192.168.64.57/32 -p tcp -m comment --comment "default/nginx-demo-1 external IP" -m tcp --dport 8088 -j KUBE-EXT-`,
			`-A KUBE-NODEPORTS -p tcp -m comment --comment "default/nginx-demo-2" -m tcp --dport 31755 -j KUBE-EXT-`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, got, stderr := invoke(t, "rules", "-f", filepath.Join("../../sim/manifests/testdata/manifests", c.name+".yaml"))
			if status != exitDone {
				t.Fatalf("status %d: %s", status, stderr)
			}
			for _, part := range c.want {
				if !strings.Contains(got, part) {
					t.Errorf("no rule %s", part)
				}
			}
			golden := filepath.Join("testdata", "rules", c.name+".golden")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("-update writes it anew (-golden +got):\n%s", diff)
			}
		})
	}
}

// The same seed makes the same bytes, for a generated cluster with every kind of Service, in both families.
func TestRulesSameBytes(t *testing.T) {
	args := []string{"rules", "mixed-types", "--services", "60", "--endpoints", "5"}
	status, first, stderr := invoke(t, args...)
	if status != exitDone || strings.Count(first, "\n-A ") < 1000 {
		t.Fatalf("status %d, %d rules: %s", status, strings.Count(first, "\n-A "), stderr)
	}
	if _, second, _ := invoke(t, args...); first != second {
		t.Errorf("two runs differ:\n%s", cmp.Diff(strings.Split(first, "\n"), strings.Split(second, "\n")))
	}
	if _, other, _ := invoke(t, append(args, "--seed", "4711")...); first == other {
		t.Error("another seed changes nothing")
	}
}

// Rules follow the scenario's proxy settings.
func TestRulesOfAScenariosProxy(t *testing.T) {
	args := []string{"rules", "steady-churn", "--services", "2", "--endpoints", "2", "--family", "IPv4"}
	status, usual, stderr := invoke(t, args...)
	if status != exitDone {
		t.Fatalf("status %d: %s", status, stderr)
	}
	status, all, stderr := invoke(t, append(args, "--set", "proxy.masqueradeAll=true")...)
	if status != exitDone {
		t.Fatalf("status %d: %s", status, stderr)
	}
	if usual == all {
		t.Error("proxy.masqueradeAll changes no rule")
	}
}

// legacyService is a Service with legacy spellings, and with the canonical ones of kube-proxy.
const legacyService = `apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: node-1, uid: 6b8a7c1e-0000-4000-8000-000000000001}
  spec: {podCIDRs: ["NODE"]}
  status: {addresses: [{type: InternalIP, address: 192.168.0.10}]}
- apiVersion: v1
  kind: Service
  metadata: {name: web, namespace: default, uid: 6b8a7c1e-0000-4000-8000-000000000002}
  spec:
    type: LoadBalancer
    clusterIP: 10.96.0.12
    externalIPs: ["EXTERNAL"]
    loadBalancerSourceRanges: ["RANGE", "MAPPED"]
    ports: [{port: 80, nodePort: 30080}]
  status: {loadBalancer: {ingress: [{ip: INGRESS}]}}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: web-1, namespace: default, uid: 6b8a7c1e-0000-4000-8000-000000000003, labels: {kubernetes.io/service-name: web}}
  addressType: IPv4
  endpoints: [{addresses: ["POD"]}]
  ports: [{port: 8080, protocol: TCP, name: ""}]
`

var (
	legacySpelling = strings.NewReplacer("NODE", "10.244.1.1/24", "EXTERNAL", "::ffff:10.1.2.3", "RANGE", " 1.2.3.4/28",
		"MAPPED", "::ffff:10.2.0.0/112", "INGRESS", "203.0.113.009", "POD", "10.244.001.006")
	canonicalSpelling = strings.NewReplacer("NODE", "10.244.1.0/24", "EXTERNAL", "10.1.2.3", "RANGE", "1.2.3.0/28",
		"MAPPED", "10.2.0.0/16", "INGRESS", "203.0.113.9", "POD", "10.244.1.6")
)

// Legacy spellings in a dump make the same rules as kube-proxy's, with a warning for each object.
func TestRulesOfLegacyAddresses(t *testing.T) {
	dir := t.TempDir()
	rules := func(name, text string) (stdout, stderr string) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		status, stdout, stderr := invoke(t, "rules", "-f", path, "--layout", "classic")
		if status != exitDone {
			t.Fatalf("%s: status %d: %s", name, status, stderr)
		}
		return stdout, stderr
	}
	want, quiet := rules("canonical.yaml", canonicalSpelling.Replace(legacyService))
	got, stderr := rules("legacy.yaml", legacySpelling.Replace(legacyService))
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("(-canonical +legacy):\n%s", diff)
	}
	for _, rule := range []string{
		"-s 1.2.3.0/28 ", "-s 10.2.0.0/16 ", "-d 10.1.2.3/32 ", "-d 203.0.113.9/32 ", "--to-destination 10.244.1.6:8080",
	} {
		if !strings.Contains(got, rule) {
			t.Errorf("no rule with %s in\n%s", rule, got)
		}
	}
	if quiet != "" {
		t.Errorf("warnings of canonical spellings: %s", quiet)
	}
	for _, object := range []string{"node node-1", "service default/web", "endpointslice default/web-1"} {
		if strings.Count(stderr, object+": ") != 1 || strings.Count(stderr, "warning: ") != 3 {
			t.Errorf("want one warning of %s:\n%s", object, stderr)
		}
	}
}

// NodePorts at "primary" are at one address of a family: the first internal one, wherever the Node lists an external one.
func TestRulesPrimaryAddress(t *testing.T) {
	write := writer(t)
	objects := write("objects.yaml", `apiVersion: v1
kind: Node
metadata: {name: juniper}
status: {addresses: [{type: ExternalIP, address: 203.0.113.4}, {type: InternalIP, address: 192.0.2.4}, {type: InternalIP, address: 192.0.2.5}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {type: NodePort, clusterIP: 10.96.3.3, ports: [{port: 80, nodePort: 30123}]}
`)
	cfg := write("proxy.yaml", "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nnodePortAddresses: [primary]\n")
	status, rules, stderr := invoke(t, "rules", "-f", objects, "--family", "IPv4", "--proxy-config", cfg)
	if status != exitDone || strings.Count(rules, " -j KUBE-NODEPORTS") != 2 || !strings.Contains(rules, "-A KUBE-SERVICES -d 192.0.2.4/32 ") {
		t.Errorf("status %d, %s\n%s", status, stderr, rules)
	}
}

// The node of the rules is --node, else hostnameOverride. A name that no node has is refused, or noted.
func TestRulesNode(t *testing.T) {
	write := writer(t)
	objects := write("objects.yaml", `apiVersion: v1
kind: Node
metadata: {name: juniper}
spec: {podCIDRs: [10.64.1.0/24]}
---
apiVersion: v1
kind: Node
metadata: {name: larch}
spec: {podCIDRs: [10.64.2.0/24]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.3.3, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: "", port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.64.2.9], nodeName: larch}]
`)
	cfg := func(host string) string {
		return write("proxy.yaml", "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\ndetectLocalMode: NodeCIDR\nhostnameOverride: \""+host+"\"\n")
	}
	for _, c := range []struct {
		host, flag string
		status     int
		rule, says string
	}{
		{"", "", exitDone, "! -s 10.64.1.0/24", ""},
		{" Larch ", "", exitDone, "! -s 10.64.2.0/24", ""},
		{"larch", "juniper", exitDone, "! -s 10.64.1.0/24", ""},
		{"oak", "", exitDone, "! -s 10.64.1.0/24", `hostnameOverride: no such node "oak"; there are: juniper, larch; proxies run on juniper`},
		{"", "lark", exitUsage, "", `--node: no such node "lark"; there are: juniper, larch`},
	} {
		args := []string{"rules", "-f", objects, "--family", "IPv4", "--proxy-config", cfg(c.host)}
		if c.flag != "" {
			args = append(args, "--node", c.flag)
		}
		status, rules, stderr := invoke(t, args...)
		if status != c.status || !strings.Contains(rules, c.rule) || !strings.Contains(stderr, c.says) || c.says == "" && stderr != "" {
			t.Errorf("hostnameOverride %q, --node %q: status %d, %s\n%s", c.host, c.flag, status, stderr, rules)
		}
	}
}

// --strict refuses the object of a dump that is otherwise left out with a message.
func TestRulesStrict(t *testing.T) {
	dump := filepath.Join(t.TempDir(), "dump.yaml")
	text := "apiVersion: v1\nkind: List\nitems:\n" +
		"- apiVersion: v1\n  kind: Service\n  metadata: {name: a, uid: u1}\n  spec: {clusterIP: 10.96.0.7, ports: [{port: 80}]}\n" +
		"- apiVersion: v1\n  kind: Service\n  metadata: {name: b, uid: u2}\n  spec: {clusterIP: 10.96.0.700, ports: [{port: 80}]}\n"
	if err := os.WriteFile(dump, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr := invoke(t, "rules", "-f", dump)
	if want := "left out: " + dump + ":11: service default/b: spec.clusterIP: "; status != exitDone || !strings.Contains(stderr, want) || !strings.Contains(stdout, "10.96.0.7/32") {
		t.Errorf("status %d, stderr %q; want the rules of a, and %q", status, stderr, want)
	}
	status, stdout, stderr = invoke(t, "rules", "-f", dump, "--strict")
	if status != exitUsage || stdout != "" || !strings.Contains(stderr, "service default/b: spec.clusterIP: ") {
		t.Errorf("--strict: status %d, stderr %q", status, stderr)
	}
}
