package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/kube-proxy/config/v1alpha1"
)

func TestProxyUsageErrors(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--variant", "ebpf"}, `--variant "ebpf": want legacy or nft`},
		{[]string{"--backend", "ipvs"}, `--backend "ipvs": want iptables, nftables or userspace`},
		{[]string{"--backend", "userspace", "--layout", "tree"}, "--layout tree is only for --backend iptables"},
		{[]string{"--endpoint-log", "x"}, "--endpoint-log is only for --backend userspace"},
		{[]string{"--layout", "flat"}, `--layout "flat": want classic or tree`},
		{[]string{"--backend", "nftables", "--variant", "nft"}, "--variant is only for iptables: it has no meaning with --backend nftables"},
		{[]string{"--backend", "nftables", "--layout", "tree"}, "--layout is only for iptables"},
		{[]string{"--policy", "none"}, `--policy "none": want token-bucket or completion-to-start`},
		{[]string{"--burst", "0"}, "--burst 0: want at least 1"},
		{[]string{"--families", "IPv4,IPv4"}, "--families IPv4,IPv4: want IPv4, IPv6 or IPv4,IPv6"},
		{[]string{"--config", "none.yaml"}, "none.yaml"},
		{[]string{"node-1"}, "takes no argument"},
	} {
		status, _, stderr := invoke(t, append([]string{"proxy"}, c.args...)...)
		if status != exitUsage || !strings.Contains(stderr, c.want) {
			t.Errorf("proxy %v: status %d, stderr lacks %q:\n%s", c.args, status, c.want, stderr)
		}
	}
}

// Outside of a lab's namespace, the proxy does nothing and reports the reason.
func TestProxyRefuses(t *testing.T) {
	status, _, stderr := invoke(t, "proxy", "--kubeconfig", "none")
	if status != exitFailed || !strings.Contains(stderr, "refusing to work: this process was not started in a namespace made by Synclab") {
		t.Errorf("status %d:\n%s", status, stderr)
	}
}

func TestNodeName(t *testing.T) {
	got, err := nodeNameOf(&v1alpha1.KubeProxyConfiguration{HostnameOverride: " Node-7\n"})
	if err != nil || got != "node-7" {
		t.Errorf("node name %q, %v; want node-7", got, err)
	}
	host, _ := os.Hostname()
	if got, err = nodeNameOf(&v1alpha1.KubeProxyConfiguration{}); err != nil || got != strings.ToLower(host) {
		t.Errorf("node name %q, %v; want the host's", got, err)
	}
}

// The log is a file for appending, or an open descriptor of the parent.
func TestOpenLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "syncs.jsonl")
	for range 2 {
		w, err := openLog(path)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(w, "line")
		w.Close()
	}
	if text, _ := os.ReadFile(path); string(text) != "line\nline\n" {
		t.Errorf("the file has %q", text)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	inherited, err := openLog(fmt.Sprintf("/dev/fd/%d", w.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(inherited, "line")
	if line, err := bufio.NewReader(r).ReadString('\n'); err != nil || line != "line\n" {
		t.Errorf("through the pipe comes %q, %v", line, err)
	}
	inherited.Close()
	_ = w.Close() // the same descriptor, already closed
	if _, err := openLog("/dev/fd/987"); err == nil || !strings.Contains(err.Error(), "not an open file") {
		t.Errorf("a closed descriptor: %v", err)
	}
	if _, err := openLog("/dev/fd/x"); err == nil {
		t.Error("/dev/fd/x was opened")
	}
}
