package front

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"synclab/scenarios"
	"synclab/sim/world"
)

// kubectl returns a function that makes a command with the kubeconfig for users.
func (l *lab) kubectl(t *testing.T) func(args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("kubectl is not on PATH")
	}
	data, err := Kubeconfig(l.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir() // also for its discovery cache
	file := filepath.Join(home, "kubeconfig")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return func(args ...string) *exec.Cmd {
		c := exec.CommandContext(ctx, path, append([]string{"--kubeconfig", file}, args...)...)
		c.Env = append(os.Environ(), "HOME="+home)
		return c
	}
}

func TestKubectl(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	l := newLab(t, scenarios.Shape{Services: 1200, Nodes: 3, Endpoints: scenarios.Endpoints{Count: 2}, Types: map[string]float64{"NodePort": 0.3, "LoadBalancer": 0.3}}, Options{GitVersion: "v1.36.3", Shift: time.Since(world.Epoch) - time.Hour})
	kubectl := l.kubectl(t)
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "e"}, Reason: "Noted", Note: "all is well", Type: "Normal",
		Regarding: corev1.ObjectReference{Kind: "Service", Namespace: "ns-01", Name: "svc-00001", UID: l.world.Objects().Services[0].UID},
	}
	service := get[corev1.Service](t, l, "/api/v1/namespaces/ns-01/services/svc-00001", 200)
	event.Regarding.UID = service.UID
	if _, err := l.client(t, runtime.ContentTypeJSON).EventsV1().Events("ns-01").Create(t.Context(), event, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args  string
		lines int // at least
		want  []string
	}{
		{"get svc -A", 1201, []string{`^NAMESPACE +NAME +TYPE +CLUSTER-IP +EXTERNAL-IP +PORT\(S\) +AGE\n`, `\nns-01 +svc-00001 +\w+ +10\.96\.0\.\d+ +\S+ +80(:\d+)?/TCP +\d+m\n`}},
		{"get services -n ns-01 svc-00001 -o wide", 2, []string{` AGE +SELECTOR\n`, ` app=svc-00001\n`}},
		{"get svc -n ns-01 svc-00001 -o yaml", 20, []string{`\napiVersion: v1\n|^apiVersion: v1\n`, `kind: Service\n`, `\n  clusterIP: 10\.96\.`}},
		{"get endpointslices -n ns-01 -l kubernetes.io/service-name=svc-00001", 2, []string{`^NAME +ADDRESSTYPE +PORTS +ENDPOINTS +AGE\n`, `\nsvc-00001-\w{5} +IPv4 +8080 +10\.\d+\.\d+\.\d+,10\.`}},
		{"get nodes -o wide", 4, []string{`^NAME +STATUS +ROLES +AGE +VERSION +INTERNAL-IP `, `\nnode-0 +Ready +<none> +60m +192\.168\.0\.1 `}},
		{"get ns", 15, []string{`\nkube-system +Active +60m\n`}},
		{"get servicecidrs", 2, []string{`\nkubernetes +10\.96\.0\.0/12 +`}},
		{"get events -n ns-01", 2, []string{`Normal +Noted +service/svc-00001 +all is well\n`}},
		{"describe svc -n ns-01 svc-00001", 15, []string{`Name: +svc-00001\n`, `Endpoints: +10\.\d+\.\d+\.\d+:8080,10\.`, `Noted .* all is well\n`}},
		{"describe ns ns-01", 3, []string{`Name: +ns-01\n`, `Status: +Active\n`}},
		{"api-resources", 8, []string{`\nservices +svc +v1 +true +Service\n`, `\nendpointslices +discovery\.k8s\.io/v1 +true +EndpointSlice\n`}},
		{"api-versions", 4, []string{`networking\.k8s\.io/v1\n`}},
		{"version", 3, []string{`Server Version: v1\.36\.3\n`}},
		{"get --raw /readyz", 1, []string{`^ok$`}},
	} {
		var errors bytes.Buffer
		command := kubectl(strings.Fields(c.args)...)
		command.Stderr = &errors
		out, err := command.Output()
		if err != nil {
			t.Errorf("kubectl %s: %v: %s", c.args, err, errors.String())
			continue
		}
		for _, want := range c.want {
			if !regexp.MustCompile(want).Match(out) {
				t.Errorf("kubectl %s printed no %q:\n%.1000s", c.args, want, out)
			}
		}
		if n := len(strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")); n < c.lines {
			t.Errorf("kubectl %s printed %d lines, want %d or more:\n%.1000s", c.args, n, c.lines, out)
		}
	}
	manifest := filepath.Join(t.TempDir(), "web.yaml")
	const objects = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: default}\nspec: {ports: [{port: 80}]}\n" +
		"---\napiVersion: v1\nkind: Service\nmetadata: {name: svc-00001, namespace: ns-01}\nspec: {ports: [{port: 81}]}\n" +
		"---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, namespace: default}\naddressType: IPv4\nendpoints: []\n"
	if err := os.WriteFile(manifest, []byte(objects), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, refused := range map[string]int{
		"delete svc -n ns-01 svc-00001": 1, "apply -f " + manifest: 3, "apply --validate=false -f " + manifest: 3,
		"apply --server-side -f " + manifest: 3, "create -f " + manifest: 3, "create ns mine": 1,
	} {
		out, err := kubectl(strings.Fields(args)...).CombinedOutput()
		if n := strings.Count(string(out), "synclab serve is read-only"); err == nil || n != refused || strings.Contains(string(out), "openapi") {
			t.Errorf("kubectl %s: %v, %d times read-only, want %d: %s", args, err, n, refused, out)
		}
	}
}

func TestKubectlWatches(t *testing.T) {
	l := newLab(t, scenarios.Shape{Services: 2, Nodes: 2, Endpoints: scenarios.Endpoints{Count: 1}}, Options{})
	command := l.kubectl(t)("get", "endpointslices", "-A", "-w", "--no-headers")
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = command.Process.Kill(); _ = command.Wait() }()
	lines := bufio.NewScanner(out)
	next := func() string {
		if !lines.Scan() {
			t.Fatalf("kubectl ended: %v", lines.Err())
		}
		return lines.Text()
	}
	for range 2 { // the existing objects
		next()
	}
	l.churn(t, 1)
	var changed discoveryv1.EndpointSlice
	for _, s := range get[discoveryv1.EndpointSliceList](t, l, "/apis/discovery.k8s.io/v1/endpointslices", 200).Items {
		if changed.ResourceVersion == "" || number(t, s.ResourceVersion) > number(t, changed.ResourceVersion) {
			changed = s
		}
	}
	if line := next(); !strings.Contains(line, changed.Name) || !strings.Contains(line, changed.Endpoints[0].Addresses[0]) {
		t.Errorf("kubectl get -w printed %q of the change of %s to %v", line, changed.Name, changed.Endpoints[0].Addresses)
	}
}
