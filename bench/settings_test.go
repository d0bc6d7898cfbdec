package bench

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/netns"
	"synclab/bench/shim"
	"synclab/proxier/runner"
	"synclab/scenarios"
	"synclab/sim"
)

// A name without suffixes stands for kube-proxy's settings, of every subject; suffixes change them, in any order.
func TestSuffixes(t *testing.T) {
	same := Settings{Policy: runner.CompletionToStart, GOGC: 100}
	for _, s := range Subjects() {
		if plain, err := ParseSubject(s.Name); err != nil || plain.Settings != same || plain.Base != s.Name || plain.ofProcess() {
			t.Errorf("%+v, %v", plain, err)
		}
	}
	for _, c := range []struct {
		text, name, base string
		want             Settings
	}{
		{"synclab/nftables+tuned", "synclab/nftables+tuned", "synclab/nftables", Settings{runner.TokenBucket, 50, true}},
		{"synclab/nftables+gogc75+bucket", "synclab/nftables+bucket+gogc75", "synclab/nftables", Settings{runner.TokenBucket, 75, false}},
		{"kube-proxy/nftables+gogc50", "kube-proxy/nftables+gogc50", "kube-proxy/nftables", Settings{runner.CompletionToStart, 50, false}},
		{"exec:mine+gogc50=/bin/mine", "exec:mine+gogc50", "exec:mine", Settings{runner.CompletionToStart, 50, false}},
	} {
		s, err := ParseSubject(c.text)
		if err != nil || s.Name != c.name || s.Base != c.base || s.Settings != c.want {
			t.Errorf("%s: %+v, %v", c.text, s, err)
		}
		if plain, _, _ := strings.Cut(c.text, "+"); s.Backend != "" {
			if base, err := ParseSubject(plain); err != nil || base.dialect() != s.dialect() || base.tool() != s.tool() {
				t.Errorf("%s is read in another way than %s", c.text, plain)
			}
		}
	}
	for text, want := range map[string]string{
		"kube-proxy/nftables+tuned":      "synclab's proxier alone",
		"exec:mine+bucket=/bin/mine":     "synclab's proxier alone",
		"synclab/nftables+fast":          "+fast is not known",
		"synclab/nftables+gogc0":         "+gogc0 is not known",
		"synclab/nftables+":              "is not known",
		"synclab/nftables+gogc5+gogc5":   "stands there twice",
		"synclab/nftables+tuned+gogc100": "takes no other suffix",
		"synclab/ipvs+tuned":             "is not known",
	} {
		if _, err := ParseSubject(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	tuned, _ := ParseSubject("synclab/nftables+tuned")
	if feed := feedFor([]Subject{tuned}, &scenarios.Scenario{}); feed != FeedAPI {
		t.Errorf("feed %s: GOGC is of a process of its own", feed)
	}
	o := ExecuteOptions{parsed: []Subject{tuned}, Feed: FeedInformers}
	if err := o.prepareTools(context.Background(), &Versions{}); err == nil || !strings.Contains(err.Error(), "settings of a process") {
		t.Errorf("with informers: %v", err)
	}
}

// Every process gets its settings, and the scenario's policy goes before the subject's.
func TestSettingsReachTheProcess(t *testing.T) {
	for _, c := range []struct {
		subject, policy string
		args, env       []string
	}{
		{"synclab/nftables", "", []string{"--policy=completion-to-start", "--return-memory=false", "--families=IPv4"}, []string{"GOGC=100"}},
		{"synclab/nftables+tuned", "", []string{"--policy=token-bucket", "--return-memory=true"}, []string{"GOGC=50"}},
		{"synclab/nftables+tuned", "completion-to-start", []string{"--policy=completion-to-start"}, []string{"GOGC=50"}},
		{"kube-proxy/nftables+gogc70", "token-bucket", nil, []string{"GOGC=70"}},
	} {
		t.Setenv("GOMEMLIMIT", "1GiB")
		r := newSlow(t).repetition
		r.lab, r.shim, r.world = &netns.Lab{Dir: t.TempDir()}, &shim.Shim{}, sim.WorldOf(&sim.Objects{}, 1)
		r.served = []corev1.IPFamily{corev1.IPv4Protocol}
		r.config = ProxyConfig(nil, &scenarios.Scenario{}, false)
		r.Scenario.Proxy.Policy = c.policy
		var err error
		if r.about, err = ParseSubject(c.subject); err != nil {
			t.Fatal(err)
		}
		_, args, env, err := r.command()
		if err != nil {
			t.Fatal(err)
		}
		all, set := strings.Join(args, " "), strings.Join(env, "\n")+"\n"
		for _, want := range c.args {
			if !strings.Contains(all, want) {
				t.Errorf("%s: no %s in %s", c.subject, want, all)
			}
		}
		for _, want := range c.env {
			if !strings.Contains(set, "\n"+want+"\n") {
				t.Errorf("%s: no %s in its environment", c.subject, want)
			}
		}
		if strings.Contains(set, "GOMEMLIMIT") {
			t.Errorf("%s has a memory limit", c.subject)
		}
	}
}
