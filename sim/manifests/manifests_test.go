package manifests

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"synclab/sim"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

var updateGolden = flag.Bool("update-manifests", false, "rewrite the golden files of the manifest tests")

// ipv4Cluster keeps the checked output short.
var ipv4Cluster = ReadOptions{
	ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")},
	PodCIDRs:     []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")},
}

func readText(t *testing.T, opts ReadOptions, text string) *sim.Objects {
	t.Helper()
	objects, err := ReadObjects([]string{"-"}, strings.NewReader(text), opts)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// proxyView describes what a proxy sees, a line for each thing.
func proxyView(o *sim.Objects) string {
	var b strings.Builder
	for _, s := range o.Services {
		fmt.Fprintf(&b, "service %s/%s %s %v", s.Namespace, s.Name, s.Spec.Type, s.Spec.ClusterIPs)
		for _, port := range s.Spec.Ports {
			fmt.Fprintf(&b, " %s:%d/%s->%s", port.Name, port.Port, port.Protocol, port.TargetPort.String())
			if port.NodePort != 0 {
				fmt.Fprintf(&b, "@%d", port.NodePort)
			}
		}
		if len(s.Spec.ExternalIPs) > 0 {
			fmt.Fprintf(&b, " external %v", s.Spec.ExternalIPs)
		}
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			fmt.Fprintf(&b, " ingress %s", ingress.IP)
		}
		if s.Spec.HealthCheckNodePort != 0 {
			fmt.Fprintf(&b, " healthcheck %d", s.Spec.HealthCheckNodePort)
		}
		b.WriteString("\n")
	}
	for _, s := range o.Slices {
		fmt.Fprintf(&b, "slice of %s/%s %s", s.Namespace, s.Labels[discoveryv1.LabelServiceName], s.AddressType)
		for _, port := range s.Ports {
			fmt.Fprintf(&b, " %s:%d/%s", *port.Name, ptr.Deref(port.Port, 0), *port.Protocol)
		}
		b.WriteString("\n")
		for _, e := range s.Endpoints {
			fmt.Fprintf(&b, "  %s", strings.Join(e.Addresses, ","))
			if e.NodeName != nil {
				fmt.Fprintf(&b, " on %s", *e.NodeName)
			}
			for _, c := range []struct {
				name string
				is   *bool
			}{{"ready", e.Conditions.Ready}, {"serving", e.Conditions.Serving}, {"terminating", e.Conditions.Terminating}} {
				if c.is != nil && *c.is {
					b.WriteString(" " + c.name)
				}
			}
			b.WriteString("\n")
		}
	}
	for _, n := range o.Nodes {
		fmt.Fprintf(&b, "node %s %v\n", n.Name, n.Spec.PodCIDRs)
	}
	return b.String()
}

func TestManifestsOfArticles(t *testing.T) {
	tests := map[string]string{
		"ngx.yaml": `
service default/ngx-svc ClusterIP [10.43.120.124] :80/TCP->80
slice of default/ngx-svc IPv4 :80/TCP
  10.42.0.148 on honor ready serving
  10.42.0.149 on honor ready serving
node honor [10.128.0.0/9]
`,
		"whoami.yaml": `
service default/whoami ClusterIP [10.10.10.28] :3000/TCP->3000
slice of default/whoami IPv4 :3000/TCP
  10.11.32.6 on node-0 ready serving
  10.13.192.4 on node-0 ready serving
  10.16.192.3 on node-0 ready serving
node node-0 [10.128.0.0/9]
`,
		"whoami-nodeport.yaml": `
service default/whoami NodePort [10.10.10.163] :3000/TCP->3000@31647
slice of default/whoami IPv4 :3000/TCP
  10.11.32.6 on node-0 ready serving
  10.13.192.4 on node-0 ready serving
  10.16.192.3 on node-0 ready serving
node node-0 [10.128.0.0/9]
`,
		"nginx-demo.yaml": `
service default/nginx-demo-1 ClusterIP [10.196.52.1] :8088/TCP->80 external [192.168.64.57]
service default/nginx-demo-2 NodePort [10.196.52.2] :8089/TCP->80@31755
slice of default/nginx-demo-1 IPv4 :80/TCP
  10.217.120.72 on minikube ready serving
  10.217.120.73 on minikube ready serving
slice of default/nginx-demo-2 IPv4 :80/TCP
  10.217.120.72 on minikube ready serving
  10.217.120.73 on minikube ready serving
node minikube [10.217.120.64/26]
`,
	}
	for file, want := range tests {
		t.Run(file, func(t *testing.T) {
			objects, err := ReadObjects([]string{filepath.Join("testdata/manifests", file)}, nil, ipv4Cluster)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), proxyView(objects)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestReadObjectsOfDirectorySkips(t *testing.T) {
	directory := t.TempDir()
	for name, text := range map[string]string{
		"b/config.json": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"n"}}`,
		"a.yml":         "# nothing\n---\napiVersion: example.com/v1\nkind: Service\nmetadata: {name: k}\n",
		"README.md":     "not: [read",
	} {
		path := filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	opts := ReadOptions{NoServices: true, LeftOut: func(l LeftOut) {
		got = append(got, strings.TrimPrefix(l.String(), directory+"/"))
	}}
	objects, err := ReadObjects([]string{directory}, nil, opts)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"a.yml:3: service k: does not concern a Service proxy",
		"b/config.json:1: configmap n/c: does not concern a Service proxy",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if len(objects.Services)+len(objects.Slices) != 0 {
		t.Errorf("got %s", proxyView(objects))
	}
}

// TestReadObjectsFaults compares the error of each file of testdata/faults with the message beside it (name.yaml,
// name.err).
func TestReadObjectsFaults(t *testing.T) {
	files, err := filepath.Glob("testdata/faults/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			_, err := ReadObjects([]string{file}, nil, ipv4Cluster)
			if err == nil {
				t.Fatal("no error")
			}
			var fault *InputError
			if !errors.As(err, &fault) || fault.File != file || fault.Line == 0 {
				t.Errorf("error has no place: %#v", err)
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".err"
			if *updateGolden {
				if err := os.WriteFile(golden, []byte(err.Error()+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, readErr := os.ReadFile(golden)
			if readErr != nil {
				t.Fatal(readErr)
			}
			if diff := cmp.Diff(string(want), err.Error()+"\n"); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestReadObjectsOrder: the order of documents and files does not change the result.
func TestReadObjectsOrder(t *testing.T) {
	var texts []string
	for _, file := range []string{"ngx.yaml", "whoami.yaml", "nginx-demo.yaml", "everything.yaml"} {
		text, err := os.ReadFile(filepath.Join("testdata/manifests", file))
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, strings.Split(string(text), "\n---\n")...)
	}
	want := readText(t, ReadOptions{}, strings.Join(texts, "\n---\n"))
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		random.Shuffle(len(texts), func(i, j int) { texts[i], texts[j] = texts[j], texts[i] })
		got := readText(t, ReadOptions{}, strings.Join(texts, "\n---\n"))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
	}
}

// The same object twice is read once. Two manifests of one name are a fault.
func TestReadObjectsTwice(t *testing.T) {
	file := "testdata/manifests/ngx.yaml"
	want, err := ReadObjects([]string{file}, nil, ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadObjects([]string{file, file}, nil, ReadOptions{})
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n(-once +twice)\n%s", err, diff)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	other := strings.Replace(string(text), "port: 80", "port: 81", 1)
	if got, err = ReadObjects([]string{file, "-"}, strings.NewReader(other), ReadOptions{}); err != nil || !strings.Contains(proxyView(got), ":81/TCP") {
		t.Errorf("the last definition does not count: %v", err)
	}
	_, err = ReadObjects([]string{file, "-"}, strings.NewReader(other), ReadOptions{Strict: true})
	if want := "service default/ngx-svc: is already defined at " + file; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v lacks %q", err, want)
	}
}

func TestReadObjectsDump(t *testing.T) {
	objects, err := ReadObjects([]string{"testdata/dumps/kubectl.json"}, nil, ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := `service default/kubernetes ClusterIP [10.43.0.1] https:443/TCP->6443
service web/shop LoadBalancer [10.43.7.7] http:80/TCP->http@30080 ingress 203.0.113.9
slice of default/kubernetes IPv4 https:6443/TCP
  192.0.2.10
slice of web/shop IPv4 http:8080/TCP
  10.42.1.5 on worker-1 ready serving
  10.42.2.6 on worker-2 serving terminating
node worker-1 []
node worker-2 []
`
	if diff := cmp.Diff(want, proxyView(objects)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	kubernetes := objects.Services[0]
	if kubernetes.ManagedFields != nil || kubernetes.Kind != "" {
		t.Errorf("managedFields or kind kept: %v", kubernetes.ObjectMeta)
	}
	if ready := objects.Slices[0].Endpoints[0].Conditions.Ready; ready != nil {
		t.Errorf("nil condition became %v", *ready)
	}
}

func TestWriteObjectsRoundTrip(t *testing.T) {
	paths := []string{"testdata/manifests/ngx.yaml", "testdata/manifests/nginx-demo.yaml", "testdata/manifests/everything.yaml"}
	want, err := ReadObjects(paths, nil, ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var dump bytes.Buffer
	if err := WriteObjects(&dump, want); err != nil {
		t.Fatal(err)
	}
	got := readText(t, ReadOptions{}, dump.String())
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	var again bytes.Buffer
	if err := WriteObjects(&again, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(dump.Bytes(), again.Bytes()) {
		t.Error("the second dump differs from the first")
	}
}

func TestSplitDocumentsLines(t *testing.T) {
	text := "\ufeff# c\n---\na: 1\n--- # next\n\nb: 2\n...\n---\n# none\n---\n{\"c\":\n 3}\n{\"d\": 4}\n"
	var got []string
	for d := range splitDocuments(inputFile{name: "f", text: decodeText([]byte(text))}) {
		got = append(got, fmt.Sprintf("%d %s", d.above+d.firstLine(), strings.Fields(strings.ReplaceAll(string(d.text), "# next", ""))[0]))
	}
	if want := []string{"3 a:", "6 b:", `11 {"c":`, `13 {"d":`}; !slices.Equal(want, got) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzReadObjects(f *testing.F) {
	for _, pattern := range []string{"testdata/manifests/*", "testdata/faults/*.yaml", "testdata/dumps/*", corpus + "/*.*"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		opts := ReadOptions{MaxPods: 1000, NoServices: true, LeftOut: func(LeftOut) {}}
		objects, err := ReadObjects([]string{"-"}, bytes.NewReader(text), opts)
		if err != nil {
			var fault *InputError
			if !errors.As(err, &fault) {
				t.Fatalf("error without a place: %v", err)
			}
			return
		}
		// Accepted input can be written and is accepted again.
		var dump bytes.Buffer
		if err := WriteObjects(&dump, objects); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadObjects([]string{"-"}, &dump, opts); err != nil {
			t.Fatalf("own dump refused: %v", err)
		}
		for _, service := range objects.Services {
			if service.Spec.Type != corev1.ServiceTypeExternalName && len(service.Spec.ClusterIPs) == 0 {
				t.Fatalf("%s: no clusterIP", sim.ObjectName("service", service))
			}
		}
	})
}
