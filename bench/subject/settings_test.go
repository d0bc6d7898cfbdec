package subject

import (
	"strings"
	"testing"

	"synclab/proxier/runner"
)

// A name without suffixes has kube-proxy's settings, for every subject. Suffixes change them, in any order.
func TestSuffixes(t *testing.T) {
	same := Settings{Policy: runner.CompletionToStart, GOGC: 100}
	for _, s := range All() {
		if plain, err := Parse(s.Name); err != nil || plain.Settings != same || plain.Settings.OfProcess() {
			t.Errorf("%+v, %v", plain, err)
		}
	}
	for _, c := range []struct {
		text, name string
		want       Settings
	}{
		{"synclab/nftables+tuned", "synclab/nftables+tuned", Settings{Policy: runner.TokenBucket, GOGC: 50, ReturnMemory: true}},
		{"synclab/nftables+gogc75+bucket", "synclab/nftables+bucket+gogc75", Settings{Policy: runner.TokenBucket, GOGC: 75, ReturnMemory: false}},
		{"kube-proxy/nftables+gogc50", "kube-proxy/nftables+gogc50", Settings{Policy: runner.CompletionToStart, GOGC: 50, ReturnMemory: false}},
		{"kube-proxy@1.34.2/nftables+gogc50", "kube-proxy@v1.34.2/nftables+gogc50", Settings{Policy: runner.CompletionToStart, GOGC: 50, ReturnMemory: false}},
		{"kube-proxy/nftables+gate:B=false+gate:A=true", "kube-proxy/nftables+gate:A=true+gate:B=false", Settings{Policy: runner.CompletionToStart, GOGC: 100, Gates: "A=true,B=false"}},
		{"kube-proxy@src:base=/src/k8s/nftables+gate:A=true", "kube-proxy@src:base/nftables+gate:A=true", Settings{Policy: runner.CompletionToStart, GOGC: 100, Gates: "A=true"}},
		{"kube-proxy/nftables+tools:new=/x/nftables+config:strict=/etc/kube-proxy", "kube-proxy/nftables+config:strict+tools:new",
			Settings{Policy: runner.CompletionToStart, GOGC: 100, Config: "strict", Tools: "new"}},
		{"synclab@src:a=/x/nftables+config:c=/y/ipvs+gogc50", "synclab@src:a/nftables+config:c+gogc50", Settings{Policy: runner.CompletionToStart, GOGC: 50, Config: "c"}},
		{"synclab@feature/x~2/iptables-nft-tree", "synclab@feature/x~2/iptables-nft-tree", Settings{Policy: runner.CompletionToStart, GOGC: 100}},
		{"exec:mine+gogc50=/bin/mine", "exec:mine+gogc50", Settings{Policy: runner.CompletionToStart, GOGC: 50, ReturnMemory: false}},
	} {
		s, err := Parse(c.text)
		if err != nil || s.Name != c.name || s.Settings != c.want {
			t.Errorf("%s: %+v, %v", c.text, s, err)
		}
		if again, err := Parse(s.Name); s.Proxier != Exec && (err != nil || again.Name != s.Name || again.Settings != s.Settings || again.ConfigFile != "") {
			t.Errorf("%s of records: %+v, %v", s.Name, again, err)
		}
		if plain, _, _ := strings.Cut(c.text, "+"); s.Backend != "" {
			if base, err := Parse(plain); err != nil || base.RulesetReader != s.RulesetReader || base.Tool != s.Tool {
				t.Errorf("%s is read in another way than %s", c.text, plain)
			}
		}
	}
	for text, want := range map[string]string{
		"kube-proxy/nftables+tuned":                    "only for synclab's proxier",
		"exec:mine+bucket=/bin/mine":                   "only for synclab's proxier",
		"synclab/nftables+fast":                        "+fast is not known",
		"synclab/nftables+gogc0":                       "+gogc0 is not known",
		"synclab/nftables+":                            "is not known",
		"synclab/nftables+gogc5+gogc5":                 "is given twice",
		"synclab/nftables+tuned+gogc100":               "cannot be combined with other suffixes",
		"synclab/ipvs+tuned":                           "is not known",
		"synclab/nftables+gate:A=true":                 "+gate:A=true is not known",
		"kube-proxy/nftables+gate:A":                   "want +gate:NAME=true or =false",
		"kube-proxy/nftables+gate:A=1":                 "want +gate:NAME=true or =false",
		"kube-proxy/nftables+gate:A=true+gate:A=false": "each gate once",
		"kube-proxy@src:=/src/nftables":                "want kube-proxy@src:NAME=DIR/MODE",
		"kube-proxy@src:a b=/src/ipvs":                 "want kube-proxy@src:NAME=DIR/MODE",
		"kube-proxy@src:a=/src/ebpf":                   "is not known",
		"kube-proxy@new/nftables":                      `"new" is no version of Kubernetes`,
		"kube-proxy@v1.34.2/ebpf":                      "is not known",
		"synclab@-x/nftables":                          `"-x" is no revision of git`,
		"cilium@v1.0/lb":                               "cilium has no versions",
		"synclab/nftables+tools:a=/x":                  "is not known here",
		"kube-proxy/nftables+config:=/x":               "is not known here",
		"kube-proxy/nftables+config:a=/x+config:b=/y":  "is not known here",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// A checkout is built from its folder. Its name in records has no folder, and is parsed again.
func TestCheckouts(t *testing.T) {
	for text, want := range map[string]Spec{
		"kube-proxy@src:base=/src/a/nftables":                   {Name: "kube-proxy@src:base/nftables", Version: "src:base", Source: "/src/a"},
		"kube-proxy@src:head=../k8s+new/iptables-legacy+gogc70": {Name: "kube-proxy@src:head/iptables-legacy+gogc70", Version: "src:head", Source: "../k8s+new"},
		"kube-proxy@src:head=a=b/nftables/ipvs":                 {Name: "kube-proxy@src:head/ipvs", Version: "src:head", Source: "a=b/nftables"},
		"kube-proxy@src:base/nftables":                          {Name: "kube-proxy@src:base/nftables", Version: "src:base"},
		"synclab@src:head=/src/a/nftables":                      {Name: "synclab@src:head/nftables", Version: "src:head", Source: "/src/a"},
	} {
		s, err := Parse(text)
		if err != nil || s.Name != want.Name || s.Version != want.Version || s.Source != want.Source || s.Program() != s.Proxier+"@"+want.Version {
			t.Errorf("%s: %+v, %v", text, s, err)
		}
		if again, err := Parse(s.Name); err != nil || again.Name != s.Name || again.Backend != s.Backend {
			t.Errorf("%s: %+v, %v", s.Name, again, err)
		}
	}
}
