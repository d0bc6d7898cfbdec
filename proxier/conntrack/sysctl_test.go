package conntrack

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTableSize(t *testing.T) {
	for _, tt := range []struct {
		perCore, least, cores, want int
	}{
		{32768, 131072, 2, 131072},    // the minimum
		{32768, 131072, 8, 262144},    // by cores
		{32768, 131072, 128, 1 << 20}, // the maximum
		{32768, 2 << 20, 128, 2 << 20},
		{0, 131072, 8, 0}, // not set
	} {
		got := Limits{MaxPerCore: tt.perCore, Min: tt.least, Cores: tt.cores}.tableSize()
		if got != tt.want {
			t.Errorf("%d per core, %d cores, at least %d: %d entries, want %d", tt.perCore, tt.cores, tt.least, got, tt.want)
		}
	}
}

func TestSysctls(t *testing.T) {
	got := Sysctls(Limits{
		MaxPerCore: 32768, Min: 131072, Cores: 8,
		TCPEstablished: 24 * time.Hour, TCPCloseWait: time.Hour, TCPBeLiberal: true, UDPStream: 3 * time.Minute,
	})
	want := []Sysctl{
		{Path: "proc/sys/net/netfilter/nf_conntrack_max", Value: 262144, AtLeast: true, Machine: true},
		{Path: "sys/module/nf_conntrack/parameters/hashsize", Value: 65536, AtLeast: true, Machine: true},
		{Path: "proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal", Value: 1},
		{Path: "proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established", Value: 86400},
		{Path: "proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait", Value: 3600},
		{Path: "proc/sys/net/netfilter/nf_conntrack_udp_timeout_stream", Value: 180},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sysctls (-want +got):\n%s", diff)
	}
	if got := Sysctls(Limits{}); len(got) != 0 {
		t.Errorf("without limits there are settings: %v", got)
	}
}

func TestApply(t *testing.T) {
	root := t.TempDir()
	write := func(path, value string) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("max", "1000")
	write("hashsize", "500")
	write("timeout", "77")
	write("same", "5")
	write("text", "many")
	list := []Sysctl{
		{Path: "max", Value: 2000, Machine: true},
		{Path: "hashsize", Value: 400, AtLeast: true, Machine: true},
		{Path: "timeout", Value: 6},
		{Path: "same", Value: 5},
		{Path: "missing", Value: 1},
		{Path: "text", Value: 1},
	}
	settings, err := Apply(list, ApplyOptions{Root: root})
	if err == nil || !strings.Contains(err.Error(), filepath.Join(root, "text")) {
		t.Errorf("a setting that is no number: error %v", err)
	}
	want := []Setting{
		{Sysctl: list[0], Before: 1000, Note: "not written: the setting is machine-wide"},
		{Sysctl: list[1], Before: 500},
		{Sysctl: list[2], Before: 77, Written: true},
		{Sysctl: list[3], Before: 5},
		{Sysctl: list[4], Note: "this kernel does not have the setting"},
		{Sysctl: list[5]},
	}
	if diff := cmp.Diff(want, settings); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	settings, err = Apply(list[:1], ApplyOptions{Root: root, Machine: true})
	if err != nil || !settings[0].Written {
		t.Errorf("machine-wide setting, allowed: %+v, %v", settings, err)
	}
	for path, want := range map[string]string{"max": "2000", "hashsize": "500\n", "timeout": "6", "same": "5\n"} {
		if got, _ := os.ReadFile(filepath.Join(root, path)); string(got) != want {
			t.Errorf("%s holds %q, want %q", path, got, want)
		}
	}
}
