package bench

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"synclab/bench/lab/profile"
	"synclab/bench/raw"
	"synclab/scenarios"
)

// A profile is refused, with the reason, where it would be wrong.
func TestProfileIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		options ExecuteOptions
		want    string
	}{
		"in a guest":     {ExecuteOptions{Kernels: []string{"6.12"}}, "--kernel"},
		"with informers": {ExecuteOptions{Feed: raw.FeedInformers}, "--feed"},
		"with a move":    {ExecuteOptions{Scenario: &scenarios.Scenario{Steps: []scenarios.Step{{Migrate: &scenarios.Migrate{}}}}}, "migrate"},
	} {
		c.options.Profile = true
		if c.options.Scenario == nil {
			c.options.Scenario = &scenarios.Scenario{}
		}
		if err := c.options.checkProfile(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want an error about %s", name, err, c.want)
		}
	}
}

// A run with profiles measures each cell with and without samples. The profile has the syncs of the subject and its tool.
func TestProfile(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	if err := profile.Check(); err != nil {
		t.Skip(err)
	}
	const subject = "kube-proxy/nftables"
	tr := newOutsideTrial(t, "cold-start", []string{subject}, "steps.react.count=2")
	tr.options.Profile = true
	if err := tr.execute(t.Context()); err != nil {
		if strings.Contains(err.Error(), "perf record") {
			t.Skip(err) // a container may forbid it
		}
		t.Fatal(err)
	}
	modes := map[string]int{}
	for _, r := range tr.of(subject, raw.ColdStart) {
		modes[r.Params[raw.ProfileField]]++
	}
	if modes[raw.ProfileOn] != 1 || modes[raw.ProfileOff] != 1 {
		t.Errorf("cold starts: %v; want one with samples and one without", modes)
	}
	syncs := map[string]float64{}
	for _, r := range tr.of(subject, raw.ProfiledSyncs) {
		syncs[r.Kind] = r.Value
	}
	if syncs["full"] < 1 || syncs["partial"] < 1 || syncs[profile.ColdStart] != 1 {
		t.Errorf("profiled syncs: %v", syncs)
	}
	samples, inputs := tr.of(subject, raw.ProfileSamples), tr.of(subject, raw.ToolInput)
	if len(samples) != 1 || len(inputs) == 0 {
		t.Fatalf("%d profiles and %d inputs", len(samples), len(inputs))
	}
	file := func(r raw.Record) []byte {
		text, err := os.ReadFile(filepath.Join(tr.options.Out, raw.ProfilesFolder, r.File))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if inputs[0].Method != "nft -f -" && !strings.HasPrefix(inputs[0].Method, "nft ") || len(file(inputs[0])) == 0 {
		t.Errorf("input %+v", inputs[0])
	}
	read, err := pprof.Parse(bytes.NewReader(file(samples[0])))
	if err != nil {
		t.Fatal(err)
	}
	labels, total := map[string]bool{}, int64(0)
	for _, s := range read.Sample {
		total += s.Value[0]
		for _, values := range s.Label {
			labels[values[0]] = true
		}
	}
	if total != int64(samples[0].Value) || !labels[subject] || !labels["full"] || !labels[profile.ColdStart] || read.Period != int64(time.Second)/profile.Frequency {
		t.Errorf("%d samples with labels %v; the record has %v", total, labels, samples[0].Value)
	}
}
