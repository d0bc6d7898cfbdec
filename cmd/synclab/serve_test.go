package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"synclab/bench/lab/upstream"
	"synclab/sim/front"
)

func TestServeRefusesOtherAddresses(t *testing.T) {
	for _, listen := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:8001", "example.com:8001"} {
		status, stdout, stderr := invoke(t, "serve", "--listen", listen)
		if status != exitUsage || !strings.Contains(stderr, "--anywhere") || stdout != "" {
			t.Errorf("--listen %s: status %d, %q", listen, status, stderr)
		}
	}
	for _, args := range [][]string{{"--listen", "8001"}, {"--churn", "-1"}, {"-f", "a.yaml", "--services", "3"}} {
		if status, _, stderr := invoke(t, append([]string{"serve"}, args...)...); status != exitUsage || !strings.Contains(stderr, "'synclab serve --help'") {
			t.Errorf("%q: status %d, %q", args, status, stderr)
		}
	}
	if status, _, stderr := invoke(t, "serve", "--listen", "192.0.2.1:0", "--anywhere"); status != exitFailed || !strings.Contains(stderr, "192.0.2.1") {
		t.Errorf("an address of another machine: status %d, %q", status, stderr)
	}
}

// serving is `synclab serve` in the background.
type serving struct {
	kubeconfig string
	client     *kubernetes.Clientset
	// end sends Ctrl-C. It returns the exit status and stderr.
	end func() (int, string)
}

func startServe(t *testing.T, args ...string) serving {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	errs := newPrinted()
	var status int
	var done sync.WaitGroup
	done.Go(func() {
		s := streams{strings.NewReader(""), in, errs}
		err := run(ctx, s, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...))
		status = exitStatus(ctx, errs, err)
		in.Close()
	})
	end := func() (int, string) {
		cancel()
		done.Wait()
		return status, errs.String()
	}
	t.Cleanup(func() { end() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		code, text := end()
		t.Fatalf("no kubeconfig on stdout: %v; status %d: %s", err, code, text)
	}
	path := strings.TrimSpace(line)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return serving{path, client, end}
}

func TestServe(t *testing.T) {
	s := startServe(t, "--services", "600", "--endpoints", "2", "--verbose")
	services, err := s.client.CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(services.Items) != 600 {
		t.Fatalf("%d services, %v; want 600", len(services.Items), err)
	}
	status, stderr := s.end()
	if status != exitInterrupted {
		t.Errorf("exit status %d, want %d", status, exitInterrupted)
	}
	for _, want := range []string{"600 Services, 600 EndpointSlices and 100 Nodes at https://127.0.0.1:", "kubectl --kubeconfig " + s.kubeconfig + " get svc -A\n", "GET /api/v1/services 200 "} {
		if !strings.Contains(stderr, want) {
			t.Errorf("stderr has no %q:\n%s", want, stderr)
		}
	}
	if _, err := os.Stat(s.kubeconfig); !os.IsNotExist(err) {
		t.Errorf("the temporary kubeconfig is still there: %v", err)
	}
}

func TestServeFilesWithChurn(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	s := startServe(t, "-f", "../../sim/manifests/testdata/manifests/ngx.yaml", "--churn", "200", "--kubeconfig-out", kubeconfig)
	w, err := s.client.DiscoveryV1().EndpointSlices("default").Watch(t.Context(), metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=ngx-svc"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for range 20 { // an existing object, then endless changes
		if e, ok := <-w.ResultChan(); !ok {
			t.Fatal("the watch ended")
		} else if e.Type == "ERROR" {
			t.Fatalf("%+v", e.Object)
		}
	}
	if status, stderr := s.end(); status != exitInterrupted || strings.Contains(stderr, "GET ") {
		t.Errorf("status %d: %s", status, stderr)
	}
	if _, err := os.Stat(kubeconfig); err != nil || s.kubeconfig != kubeconfig {
		t.Errorf("kubeconfig %s: %v", s.kubeconfig, err)
	}
}

// The served cluster is of the version of the kube-proxy that is compared.
func TestServedVersion(t *testing.T) {
	if front.KubernetesVersion != upstream.Pinned {
		t.Errorf("serve says %s, and kube-proxy is %s", front.KubernetesVersion, upstream.Pinned)
	}
}
