package inspect

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/bench/lab/netns"
	"synclab/bench/lab/upstream"
	"synclab/bench/verify/conform"
	"synclab/proxier/config"
	"synclab/proxier/iptables"
)

func TestMain(m *testing.M) { os.Exit(netns.TestMain(m)) }

// What an unmodified kube-proxy writes in modes iptables and nftables is in sync with its objects, and nothing of it is broken.
func TestKubeProxy(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: without kube-proxy")
	}
	command, _, err := upstream.KubeProxy(t.Context(), upstream.Options{CachedOnly: true})
	switch {
	case errors.Is(err, upstream.ErrNotBuilt) && os.Getenv("SYNCLAB_REQUIRE_KUBE_PROXY") == "":
		t.Skip("no kube-proxy here; 'synclab build kube-proxy' builds it")
	case err != nil:
		t.Fatal(err)
	}
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("nft is not installed")
	}
	for _, mode := range []v1alpha1.ProxyMode{config.ModeIPTables, config.ModeNFTables} {
		t.Run(string(mode), func(t *testing.T) {
			cfg := config.New()
			cfg.Mode, cfg.ClusterCIDR = mode, "10.244.0.0/16"
			setting := conform.Setting{Variant: iptables.Nft, Families: []corev1.IPFamily{corev1.IPv4Protocol}, Config: cfg}
			live, err := conform.StartLive(t.Context(), command, setting, "node-7", cluster(t))
			if err != nil {
				t.Fatal(err)
			}
			defer live.Stop()
			if err := live.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"list", "ruleset"}, {"-j", "list", "ruleset"}} {
				var text []byte
				if mode == config.ModeIPTables {
					four, err4 := live.Saved(corev1.IPv4Protocol)
					six, err6 := live.Saved(corev1.IPv6Protocol)
					text, err = append(four, six...), errors.Join(err4, err6)
				} else {
					err = live.Do(func() (err error) { text, err = exec.Command("nft", args...).Output(); return err })
				}
				if err != nil {
					t.Fatal(err)
				}
				d, err := Read("kube-proxy", bytes.NewReader(text))
				if err != nil {
					t.Fatal(err)
				}
				r := d.Examine()
				if r.Sync, err = d.Compare(t.Context(), live.Objects(), cfg, true); err != nil {
					t.Fatal(err)
				}
				if exact := strings.Contains(r.Sync.Method[0], "rule for rule"); r.Broken() || r.Sync.Services < 3 || len(r.Sync.Method) != 2 || exact != (mode == config.ModeIPTables) {
					t.Errorf("%v: %+v, findings %+v: %s", args, r.Sync, r.Findings, text)
				}
			}
		})
	}
}
