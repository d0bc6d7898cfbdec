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
		{"exec:mine+gogc50=/bin/mine", "exec:mine+gogc50", Settings{Policy: runner.CompletionToStart, GOGC: 50, ReturnMemory: false}},
	} {
		s, err := Parse(c.text)
		if err != nil || s.Name != c.name || s.Settings != c.want {
			t.Errorf("%s: %+v, %v", c.text, s, err)
		}
		if plain, _, _ := strings.Cut(c.text, "+"); s.Backend != "" {
			if base, err := Parse(plain); err != nil || base.RulesetReader() != s.RulesetReader() || base.Tool() != s.Tool() {
				t.Errorf("%s is read in another way than %s", c.text, plain)
			}
		}
	}
	for text, want := range map[string]string{
		"kube-proxy/nftables+tuned":      "only for synclab's proxier",
		"exec:mine+bucket=/bin/mine":     "only for synclab's proxier",
		"synclab/nftables+fast":          "+fast is not known",
		"synclab/nftables+gogc0":         "+gogc0 is not known",
		"synclab/nftables+":              "is not known",
		"synclab/nftables+gogc5+gogc5":   "is given twice",
		"synclab/nftables+tuned+gogc100": "cannot be combined with other suffixes",
		"synclab/ipvs+tuned":             "is not known",
		"kube-proxy@new/nftables":        `"new" is no version of Kubernetes`,
		"kube-proxy@v1.34.2/ebpf":        "is not known",
		"synclab@v1.34.2/nftables":       "is not known",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
