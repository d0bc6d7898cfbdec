package manifests

import (
	"bytes"
	_ "embed"
	"strings"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/world"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// legacyDump has addresses and ranges that an API server took before it checked them strictly, and keeps.
//
//go:embed testdata/dumps/legacy.yaml
var legacyDump string

func readLegacy(t *testing.T, text string) (objects *sim.Objects, warnings []string) {
	t.Helper()
	opts := ReadOptions{Warned: func(w Warning) { warnings = append(warnings, w.String()) }}
	return readText(t, opts, text), warnings
}

// Objects of an API server are read, with one warning an object. They keep their spelling, because a proxy reads it.
func TestReadObjectsLegacyAddresses(t *testing.T) {
	objects, warnings := readLegacy(t, legacyDump)
	want := []string{
		`stdin:24: endpointslice default/web-1: endpoints[0].addresses[0] "::ffff:10.244.1.5" is read as 10.244.1.5: write it so in new objects (and 1 more)`,
		`stdin:5: node node-1: status.addresses[0].address "192.168.000.010" is read as 192.168.0.10: write it so in new objects (and 2 more)`,
		`stdin:34: pod default/pod-1: status.podIPs[0].ip "10.244.001.009" is read as 10.244.1.9: write it so in new objects (and 1 more)`,
		`stdin:10: service default/web: spec.clusterIP "10.96.000.012" is read as 10.96.0.12: write it so in new objects (and 8 more)`,
		`stdin:30: endpoints default/outside: endpoints[0].addresses[0] "192.000.2.7" is read as 192.0.2.7: write it so in new objects`,
	}
	if diff := cmp.Diff(want, warnings); diff != "" {
		t.Errorf("warnings (-want +got)\n%s", diff)
	}
	view := `service default/db ClusterIP [10.96.0.13] :5432/TCP->5432
service default/outside ClusterIP [10.96.0.14] :53/TCP->53
service default/web LoadBalancer [10.96.000.012 FD00:0:0::1] :80/TCP->80@30080 external [::ffff:10.1.2.3] ingress 203.0.113.009
`
	if got := proxyView(objects); !strings.HasPrefix(got, view) {
		t.Errorf("got\n%swant\n%s", got, view)
	}
	// The slices of Endpoints and pods are new objects.
	for _, address := range []string{"\n  ::ffff:10.244.1.5", "\n  10.244.001.006", "\n  192.0.2.7", "\n  10.244.1.9 on node-1"} {
		if got := proxyView(objects); !strings.Contains(got, address) {
			t.Errorf("no endpoint %q in\n%s", address, got)
		}
	}
	var dump bytes.Buffer
	if err := WriteObjects(&dump, objects); err != nil {
		t.Fatal(err)
	}
	again, warnings := readLegacy(t, dump.String())
	if diff := cmp.Diff(objects, again); diff != "" {
		t.Errorf("written and read again (-want +got)\n%s", diff)
	}
	if len(warnings) != 3 {
		t.Errorf("warnings of what was written: %q; want those of the node, the Service and its slice", warnings)
	}
}

// Without the fields that an API server sets, an object is a new manifest.
func TestReadObjectsNewAddressesAreStrict(t *testing.T) {
	for _, c := range []struct{ marker, field string }{
		{`resourceVersion: "7"`, "status.addresses[0].address"},
		{"uid: 6b8a7c1e-0000-4000-8000-000000000001", "spec.loadBalancerSourceRanges[0]"},
		{`creationTimestamp: "2020-01-01T00:00:00Z"`, "endpoints[0].addresses[0]"},
		{"uid: 6b8a7c1e-0000-4000-8000-000000000002", "endpoints default/outside"},
		{"uid: 6b8a7c1e-0000-4000-8000-000000000003", "status.podIPs[0].ip"},
	} {
		text := strings.Replace(legacyDump, c.marker, "generateName: x", 1)
		text = strings.Replace(text, "  status: {loadBalancer: {ingress: [{ip: 203.0.113.009}]}}\n", "", 1)
		_, err := ReadObjects([]string{"-"}, strings.NewReader(text), ReadOptions{})
		// A Service is checked only if the rest is valid.
		if err == nil || !strings.Contains(err.Error(), c.field) {
			t.Errorf("without %s: %v; want a fault of %s", c.marker, err, c.field)
		}
	}
}

// Objects of an API server may be invalid, too. Those with values that no proxy can read are left out, or refused if the
// reader is strict.
func TestReadObjectsLegacyIsNotAnything(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{" 1.2.3.4/28", "1.2.3.4/33", "spec.loadBalancerSourceRanges[0]"},
		{"::ffff:10.1.2.3", "::ffff:127.0.0.1", "spec.externalIPs[0]"},
		{"10.244.001.006", "10.244.001", "endpoints[1].addresses[0]"},
		{"10.244.001.006", "FD00:244:0:1::6", "endpoints[1].addresses[0]"},
		{"db, namespace: default}\n  spec: {clusterIP: 10.96.0.13", "db, namespace: default, uid: u}\n  spec: {clusterIP: 10.96.0.14", "is already used by"},
	} {
		text := strings.Replace(legacyDump, c.old, c.new, 1)
		_, err := ReadObjects([]string{"-"}, strings.NewReader(text), ReadOptions{Strict: true})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want a fault of %s", c.new, err, c.want)
		}
		var left []string
		opts := ReadOptions{LeftOut: func(l LeftOut) { left = append(left, l.String()) }}
		if readText(t, opts, text); len(left) == 0 || !strings.Contains(left[0], c.want) {
			t.Errorf("%s: left out: %q; want first an object for %s", c.new, left, c.want)
		}
	}
}

// A pod gets no address that a legacy object has, and none outside of its node's legacy range.
func TestLegacyAddressesAreTaken(t *testing.T) {
	objects, _ := readLegacy(t, strings.NewReplacer("10.244.001.009", "10.244.001.002").Replace(legacyDump)+`- apiVersion: v1
  kind: Pod
  metadata: {name: pod-2, namespace: default, labels: {app: db}}
  spec: {nodeName: node-1, containers: [{name: c, image: i}]}
`)
	if got := proxyView(objects); !strings.Contains(got, "\n  10.244.1.2 on node-1") || !strings.Contains(got, "\n  10.244.1.3 on node-1") {
		t.Errorf("pods are not at 10.244.1.2 and 10.244.1.3:\n%s", got)
	}
	// A World does not assign these addresses again.
	w := world.WorldOf(objects, 1)
	trace, err := w.Create(scenarios.Create{Services: 300})
	if err != nil {
		t.Fatal(err)
	}
	taken := map[string]bool{"10.244.1.5": true, "10.244.1.6": true, "10.96.0.12": true, "10.1.2.3": true}
	for _, change := range trace {
		switch o := change.Object.(type) {
		case *corev1.Service:
			for _, ip := range append(o.Spec.ExternalIPs, o.Spec.ClusterIPs...) {
				if taken[ip] {
					t.Errorf("service %s gets %s again", o.Name, ip)
				}
			}
		case *discoveryv1.EndpointSlice:
			for _, ep := range o.Endpoints {
				if taken[ep.Addresses[0]] {
					t.Errorf("an endpoint of slice %s gets %s again", o.Name, ep.Addresses[0])
				}
			}
		}
	}
}

// A field in another case, and a family that no API server has, make an object of a dump empty or unusable.
func TestReadObjectsOddDumps(t *testing.T) {
	const plum = "apiVersion: v1\nkind: Service\nmetadata: {name: plum, uid: a}\nspec: {ports: [{port: 80}], clusterIP: 10.96.3.1}\n---\n"
	const slice = "kind: EndpointSlice\nmetadata: {name: plum-1, uid: b, labels: {kubernetes.io/service-name: plum}}\n"
	for object, want := range map[string]string{
		"apiVersion: discovery.k8s.io/v1beta1\n" + slice + "addressType: IPv4\nEndpoints: [{topology: {kubernetes.io/hostname: elm}}]\n": "",
		"apiVersion: discovery.k8s.io/v1\n" + slice + `endpoints: [{addresses: ["***HIDDEN***"]}]`:                                       "endpointslice default/plum-1: addressType",
		"apiVersion: v1\nkind: Service\nmetadata: {name: pear, uid: c}\n" +
			`spec: {ports: [{port: 80}], ipFamilies: [IPv5], externalIPs: ["***"]}`: "service default/pear: spec.",
	} {
		left := ""
		readText(t, ReadOptions{LeftOut: func(l LeftOut) { left += l.String() }}, plum+object)
		if (left == "") != (want == "") || !strings.Contains(left, want) {
			t.Errorf("%s\nleft out %q, want %q", object, left, want)
		}
	}
}

// Endpoints whose addresses are redacted alike stay different endpoints.
func TestReadObjectsRedactedAlike(t *testing.T) {
	for _, text := range []string{"10.**.**.**", "10.0.x.x", "***HIDDEN***"} {
		objects := readText(t, ReadOptions{}, `apiVersion: v1
kind: Service
metadata: {name: plum, uid: a}
spec: {ports: [{port: 80}], clusterIP: 10.96.3.1}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: plum-1, uid: b, labels: {kubernetes.io/service-name: plum}}
addressType: IPv4
endpoints: [{addresses: ["`+text+`"]}, {addresses: ["`+text+`"]}]
ports: [{name: "", port: 8080, protocol: TCP}]
`)
		if e := objects.Slices[0].Endpoints; len(e) != 2 || e[0].Addresses[0] == e[1].Addresses[0] {
			t.Errorf("%s: endpoints %v", text, e)
		}
	}
}

// An object of a dump with several faults is one line that counts them; a strict reader lists all.
func TestReadObjectsCountsFaults(t *testing.T) {
	const text = "apiVersion: v1\nkind: Service\nmetadata: {name: plum, uid: a}\n" +
		"spec: {clusterIP: 10.96.3.1, ports: [{name: a, port: 0}, {name: b, port: 70000}, {name: c, port: -1}, {name: d, port: -2}]}\n"
	left := ""
	readText(t, ReadOptions{LeftOut: func(l LeftOut) { left += l.String() }, NoServices: true}, text)
	if !strings.Contains(left, "spec.ports[0].port: ") || !strings.HasSuffix(left, "(and 7 more)") {
		t.Errorf("left out %q", left)
	}
	_, err := ReadObjects([]string{"-"}, strings.NewReader(text), ReadOptions{Strict: true})
	if err == nil || strings.Count(err.Error(), "spec.ports[") != 8 {
		t.Errorf("strict: %v", err)
	}
}
