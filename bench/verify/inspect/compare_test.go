package inspect

import (
	"slices"
	"strings"
	"testing"

	"synclab/bench/verify/conform"
	"synclab/proxier"
	"synclab/proxier/config"
	"synclab/proxier/iptables"
)

// Rules that were rendered for the objects are in sync; a change of any kind is found, by its Service.
func TestCompare(t *testing.T) {
	o, cfg := cluster(t), config.New()
	cfg.ClusterCIDR = "10.244.0.0/16"
	models, err := proxier.Render(t.Context(), conform.Setting{Variant: iptables.Nft, Config: cfg}.Options(o.Nodes[0], proxier.Machine{RandomFully: true}), o.Services, o.Slices, o.Nodes[0])
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, m := range models {
		if err := m.Save(&b); err != nil {
			t.Fatal(err)
		}
	}
	text := b.String()
	for name, c := range map[string]struct {
		old, now string
		exact    bool
		want     string // the Service and a line; empty: in sync
	}{
		"as it is":         {"", "", true, ""},
		"another endpoint": {"10.244.1.6", "10.244.1.9", true, "shop/web 10.96.0.20:80 tcp: missing endpoints 10.244.1.6:8080"},
		"refusal missing":  {`-A KUBE-SERVICES -d 10.96.0.21`, `-A KUBE-SERVICES -d 10.96.0.22`, false, "shop/api 10.96.0.21:80 tcp: missing"},
		"another NodePort": {"--dport 30080", "--dport 30081", false, "shop/web NodePort 30081 tcp: extra"},
		"masquerading":     {"! -s 10.244.0.0/16", "! -s 10.0.0.0/8", true, "shop/web -A KUBE-SVC-"},
		"not exact":        {"! -s 10.244.0.0/16", "! -s 10.0.0.0/8", false, ""},
	} {
		changed := strings.ReplaceAll(text, c.old, c.now)
		if c.old != "" && changed == text {
			t.Fatalf("%s: the rules have no %q", name, c.old)
		}
		s, err := readText(t, changed).Compare(t.Context(), o, cfg, c.exact)
		if err != nil {
			t.Fatal(err)
		}
		if exact := strings.Contains(s.Method[0], "rule for rule"); exact != c.exact || s.Services != 2 {
			t.Errorf("%s: compared %q, %d Services", name, s.Method, s.Services)
		}
		service, line, _ := strings.Cut(c.want, " ")
		if c.want == "" && len(s.Differ) > 0 || c.want != "" && !slices.ContainsFunc(s.Differ, func(d Differ) bool {
			return d.Service == service && strings.Contains(strings.Join(d.Lines, "\n")+d.Diff, line)
		}) {
			t.Errorf("%s: got %+v, want %q", name, s.Differ, c.want)
		}
	}
}
