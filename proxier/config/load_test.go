package config

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"
)

const header = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

// The strict decoder must set the same values as the usual YAML → JSON → struct way. Only its errors differ.
func TestLoadFullFile(t *testing.T) {
	path := filepath.Join("testdata", "full.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := Parse(path, text, LoadOptions{Strict: true, Minor: 37})
	if err != nil {
		t.Fatal(err)
	}
	want := &v1alpha1.KubeProxyConfiguration{}
	if err := yaml.UnmarshalStrict(text, want); err != nil {
		t.Fatal(err)
	}
	Default(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Load differs from the usual decoder (-usual +ours):\n%s", diff)
	}
	if got.MetricsBindAddress != "[::1]:10249" {
		t.Errorf("metricsBindAddress = %q; want the port completed", got.MetricsBindAddress)
	}
	if got.IPTables.MinSyncPeriod.Duration != 500*time.Millisecond || *got.IPTables.LocalhostNodePorts {
		t.Errorf("iptables = %+v; want the values of the file", got.IPTables)
	}
}

func TestLoadJSON(t *testing.T) {
	text, err := json.Marshal(New())
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := Parse("config.json", text, LoadOptions{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(New(), got); diff != "" {
		t.Errorf("defaults written as JSON and read back (-want +got):\n%s", diff)
	}
}

func TestDefaults(t *testing.T) {
	cfg, _, err := Parse("config.yaml", []byte(header), LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(New(), cfg); diff != "" {
		t.Errorf("an empty configuration is not New() (-New +parsed):\n%s", diff)
	}
	type values struct {
		Mode                                        v1alpha1.ProxyMode
		Local                                       v1alpha1.LocalMode
		Bind, Healthz, Metrics                      string
		Bit, OOM, MaxPerCore, Min                   int32
		MasqueradeAll, Localhost, Liberal           bool
		Sync, Least, Config, Established, CloseWait time.Duration
		QPS                                         float32
		Burst                                       int32
		LogFormat                                   string
	}
	want := values{
		Mode: "iptables", Local: "ClusterCIDR",
		Bind: "0.0.0.0", Healthz: "0.0.0.0:10256", Metrics: "127.0.0.1:10249",
		Bit: 14, OOM: -999, MaxPerCore: 32768, Min: 131072, Localhost: true,
		Sync: 30 * time.Second, Least: time.Second, Config: 15 * time.Minute,
		Established: 24 * time.Hour, CloseWait: time.Hour,
		QPS: 5, Burst: 10, LogFormat: "text",
	}
	got := values{
		Mode: cfg.Mode, Local: cfg.DetectLocalMode,
		Bind: cfg.BindAddress, Healthz: cfg.HealthzBindAddress, Metrics: cfg.MetricsBindAddress,
		Bit: *cfg.IPTables.MasqueradeBit, OOM: *cfg.OOMScoreAdj, MaxPerCore: *cfg.Conntrack.MaxPerCore, Min: *cfg.Conntrack.Min,
		MasqueradeAll: cfg.IPTables.MasqueradeAll, Localhost: *cfg.IPTables.LocalhostNodePorts, Liberal: cfg.Conntrack.TCPBeLiberal,
		Sync: cfg.IPTables.SyncPeriod.Duration, Least: cfg.IPTables.MinSyncPeriod.Duration, Config: cfg.ConfigSyncPeriod.Duration,
		Established: cfg.Conntrack.TCPEstablishedTimeout.Duration, CloseWait: cfg.Conntrack.TCPCloseWaitTimeout.Duration,
		QPS: cfg.ClientConnection.QPS, Burst: cfg.ClientConnection.Burst, LogFormat: cfg.Logging.Format,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

func TestDefaultAddresses(t *testing.T) {
	for _, c := range []struct{ bind, healthz, metrics, wantHealthz, wantMetrics string }{
		{"", "", "", "0.0.0.0:10256", "127.0.0.1:10249"},
		{"192.0.2.1", "", "", "0.0.0.0:10256", "127.0.0.1:10249"},
		{"::", "", "", "[::]:10256", "[::1]:10249"},
		{"2001:db8::1", "127.0.0.1", "[::]", "127.0.0.1:10256", "[::]:10249"},
		{"", "10.0.0.1:1", "[::1]:2", "10.0.0.1:1", "[::1]:2"},
	} {
		cfg := &v1alpha1.KubeProxyConfiguration{BindAddress: c.bind, HealthzBindAddress: c.healthz, MetricsBindAddress: c.metrics}
		Default(cfg)
		if cfg.HealthzBindAddress != c.wantHealthz || cfg.MetricsBindAddress != c.wantMetrics {
			t.Errorf("bind %q, healthz %q, metrics %q: got %s and %s; want %s and %s", c.bind, c.healthz, c.metrics,
				cfg.HealthzBindAddress, cfg.MetricsBindAddress, c.wantHealthz, c.wantMetrics)
		}
	}
}

// A decoder may refuse what fits the types.
func TestDecoderErrorIsNamed(t *testing.T) {
	d := &document{file: "c.yaml", json: []byte("{}")}
	if got, want := d.wrongTypes(errors.New("the cause")).err().Error(), "c.yaml: a value is not of the type that kube-proxy wants: the cause"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Default keeps set values, also false or zero where the type distinguishes them from unset.
func TestDefaultKeepsWhatIsSet(t *testing.T) {
	cfg, _, err := Parse("config.yaml", []byte(header+
		"oomScoreAdj: 0\niptables: {masqueradeBit: 0, localhostNodePorts: false}\nconntrack: {maxPerCore: 0, tcpCloseWaitTimeout: 0s}\n"), LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if *cfg.OOMScoreAdj != 0 || *cfg.IPTables.MasqueradeBit != 0 || *cfg.IPTables.LocalhostNodePorts ||
		*cfg.Conntrack.MaxPerCore != 0 || *cfg.Conntrack.TCPCloseWaitTimeout != (metav1.Duration{}) {
		t.Errorf("a zero of the file was replaced: %+v", cfg)
	}
}

// Each case is a whole error message, so the test also checks line numbers and wording.
func TestLoadErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "c.yaml: no KubeProxyConfiguration is in it"},
		{"not YAML", header + "mode: [", "c.yaml:3: did not find expected node content"},
		{"not YAML, in a later document", header + "---\nkind: X\na: [", "c.yaml:5: did not find expected node content"},
		{"a list", "- 1", "c.yaml:1: not an object of Kubernetes"},
		{"two configurations", header + "---\n" + header, "c.yaml:5: a second KubeProxyConfiguration: want one"},
		{"no kind", "mode: iptables", "c.yaml: no KubeProxyConfiguration is in it, only a document without kind"},
		{"wrong kind", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n",
			"c.yaml: no KubeProxyConfiguration is in it, only KubeletConfiguration"},
		{"wrong version", "apiVersion: kubeproxy.config.k8s.io/v1\nkind: KubeProxyConfiguration\n",
			`c.yaml:1: apiVersion: "kubeproxy.config.k8s.io/v1" is not known; want kubeproxy.config.k8s.io/v1alpha1`},
		{"misspelt", header + "iptables:\n  masqueradebit: 3\n", "c.yaml:4: iptables.masqueradebit: unknown field"},
		{"unknown, with a dot", header + "iptables.masqueradeAll: true\n", "c.yaml:3: iptables.masqueradeAll: unknown field"},
		{"gate with a dot", header + "featureGates:\n  a.b: 3\n", "c.yaml:4: featureGates.a.b: is 3: want true or false"},
		{"unknown", header + "iptables: {backend: nft}\n", "c.yaml:3: iptables.backend: unknown field"},
		{"twice", header + "mode: iptables\niptables: {}\nmode: iptables\n", "c.yaml:5: mode: is set twice, the last value counts"},
		{"gate twice", header + "featureGates:\n  A: true\n  A: false\n", "c.yaml:5: featureGates.A: is set twice, the last value counts"},
		{"twice, by a merge", header + "iptables: &p {syncPeriod: 45s}\nnftables:\n  <<: *p\n  syncPeriod: 30s\n",
			"c.yaml:6: nftables.syncPeriod: is set twice, the last value counts"},
		{"twice, by a later merge", header + "iptables: &p {syncPeriod: 45s}\nnftables: {syncPeriod: 30s, <<: *p}\n",
			"c.yaml:3: nftables.syncPeriod: is set twice, the last value counts"},
		{"wrong types", header + "clusterCIDR: 10\niptables:\n  masqueradeBit: many\n  masqueradeAll: 1\nconntrack: none\nnodePortAddresses: 10.0.0.0/8\nmode: {}\n",
			"c.yaml:3: clusterCIDR: is 10: want text, in quotes\n" +
				`c.yaml:5: iptables.masqueradeBit: is the text "many": want a whole number` + "\n" +
				"c.yaml:6: iptables.masqueradeAll: is 1: want true or false\n" +
				`c.yaml:7: conntrack: is the text "none": want a mapping` + "\n" +
				`c.yaml:8: nodePortAddresses: is the text "10.0.0.0/8": want a list` + "\n" +
				"c.yaml:9: mode: is a mapping: want text, in quotes"},
		{"wrong types, deep", header + "nodePortAddresses: [primary, 7]\nfeatureGates: {A: maybe}\nlogging: {options: {json: {infoBufferSize: much}}}\n",
			"c.yaml:3: nodePortAddresses[1]: is 7: want text, in quotes\n" +
				`c.yaml:4: featureGates.A: is the text "maybe": want true or false` + "\n" +
				`c.yaml:5: logging.options.json.infoBufferSize: is the text "much": want a quantity such as 500m or 2Gi`},
		{"too large", header + "oomScoreAdj: 99999999999\n", "c.yaml:3: oomScoreAdj: is 99999999999: want a whole number, of at most 32 bits"},
		{"too small", header + "oomScoreAdj: -99999999999\n", "c.yaml:3: oomScoreAdj: is -99999999999: want a whole number, of at most 32 bits"},
		{"no unit", header + "iptables:\n  syncPeriod: 30\n",
			"c.yaml:4: iptables.syncPeriod: is 30: want a duration with a unit, such as 30s or 1m30s"},
		{"numbers", header + "clientConnection: {qps: many}\nlogging: {verbosity: -1, flushFrequency: soon}\n",
			`c.yaml:3: clientConnection.qps: is the text "many": want a number` + "\n" +
				`c.yaml:4: logging.flushFrequency: is the text "soon": want a duration with a unit, such as 30s or 1m30s` + "\n" +
				"c.yaml:4: logging.verbosity: is -1: want a whole number, 0 or more"},
		{"list element", header + "nodePortAddresses:\n- 10.0.0.0/8\n- primary\n- 10.0.0.1\n- primary\n",
			`c.yaml:6: nodePortAddresses[2]: "10.0.0.1" is not a CIDR; want CIDRs, "primary", "localhost" or "all"` + "\n" +
				`c.yaml:7: nodePortAddresses[3]: "primary" is listed twice`},
		{"value and default disagree", header + "iptables:\n  minSyncPeriod: 31s\n",
			"c.yaml:4: iptables.minSyncPeriod: 31s is longer than iptables.syncPeriod, 30s"},
		{"mode of Windows", header + "mode: kernelspace\n", "c.yaml:3: mode: kernelspace is for Windows; want iptables, ipvs or nftables"},
		{"not in the file", header + "detectLocalMode: BridgeInterface\n",
			"c.yaml: detectLocal.bridgeInterface: missing; detectLocalMode BridgeInterface needs it"},
		{"hidden metrics", header + "showHiddenMetricsForVersion: '1.20'\n",
			`c.yaml:3: showHiddenMetricsForVersion: "1.20": kube-proxy 1.37 takes only "1.36"`},
		{"in a ConfigMap", "apiVersion: v1\nkind: ConfigMap\ndata:\n  config.conf: |\n    apiVersion: kubeproxy.config.k8s.io/v1alpha1\n    kind: KubeProxyConfiguration\n    mode: ebpf\n",
			`c.yaml:7: mode: "ebpf" is not known; want iptables, ipvs or nftables`},
		{"in a ConfigMap, quoted", "apiVersion: v1\nkind: ConfigMap\ndata: {config: \"apiVersion: kubeproxy.config.k8s.io/v1alpha1\\nkind: KubeProxyConfiguration\\nmode: ebpf\"}\n",
			`c.yaml, config: mode: "ebpf" is not known; want iptables, ipvs or nftables`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := Parse("c.yaml", []byte(c.text), LoadOptions{Strict: true, Minor: 37})
			if err == nil {
				t.Fatalf("accepted; want %s", c.want)
			}
			if diff := cmp.Diff(strings.Split(c.want, "\n"), strings.Split(err.Error(), "\n")); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			var field *FieldError
			if !errors.As(err, &field) {
				t.Errorf("%T holds no *FieldError", err)
			}
		})
	}
}
