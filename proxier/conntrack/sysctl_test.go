package conntrack

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
)

// Settings are written, but for those that are 0 and those that the kernel lacks; one that fails does not prevent the others.
func TestApplySysctls(t *testing.T) {
	root := t.TempDir()
	file := func(name string) string { return filepath.Join(root, netfilterDir, name) }
	if err := os.MkdirAll(file("nf_conntrack_tcp_timeout_established"), 0o755); err != nil { // a folder cannot be written
		t.Fatal(err)
	}
	for _, name := range []string{"nf_conntrack_max", "nf_conntrack_tcp_be_liberal", "nf_conntrack_tcp_timeout_close_wait", "nf_conntrack_udp_timeout"} {
		if err := os.WriteFile(file(name), []byte("77\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	err := ApplySysctls(root, &v1alpha1.KubeProxyConntrackConfiguration{
		TCPBeLiberal: true, TCPEstablishedTimeout: &metav1.Duration{Duration: 24 * time.Hour}, TCPCloseWaitTimeout: &metav1.Duration{Duration: time.Hour},
		UDPStreamTimeout: metav1.Duration{Duration: 3 * time.Minute}, // missing in this kernel
	})
	if err == nil || !strings.Contains(err.Error(), "write 86400 to sysctl") || strings.Contains(err.Error(), "stream") {
		t.Errorf("a folder in place of a setting: error %v", err)
	}
	for name, want := range map[string]string{
		"nf_conntrack_max": "77\n", "nf_conntrack_tcp_be_liberal": "1", "nf_conntrack_tcp_timeout_close_wait": "3600", "nf_conntrack_udp_timeout": "77\n",
	} {
		if got, _ := os.ReadFile(file(name)); string(got) != want {
			t.Errorf("%s holds %q, want %q", name, got, want)
		}
	}
	if _, err := os.Stat(file("nf_conntrack_udp_timeout_stream")); err == nil {
		t.Error("a setting that the kernel lacks was made")
	}
}
