package reports

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"synclab/bench"
	"synclab/scenarios"
)

// Unlike is something that two runs do not share, beside what they measured.
type Unlike struct {
	What   string `json:"what"`
	Before string `json:"before"`
	After  string `json:"after"`
	// Compared says that it is what one compares runs for, a version of a proxier; else a difference between the runs may
	// come from it.
	Compared bool `json:"compared,omitempty"`
}

// unlikes of two runs: versions and machine, then the scenario.
func unlikes(before, after bench.Run) []Unlike {
	var out []Unlike
	add := func(what, a, b string, compared bool) {
		if a != b {
			out = append(out, Unlike{what, cmp.Or(a, "none"), cmp.Or(b, "none"), compared})
		}
	}
	for _, part := range append(slices.Clone(runParts), runSeed, runFeed, runObserved) {
		if part.what != "memory" || apartBy(float64(before.Machine.MemoryBytes), float64(after.Machine.MemoryBytes), 0.02) {
			add(part.what, part.of(before), part.of(after), part.compared)
		}
	}
	add("scenario", before.Scenario.Name, after.Scenario.Name, false)
	if before.Scenario.Name != after.Scenario.Name {
		return out // nobody expects these to share their steps
	}
	return append(out, unlikeFields(before.Scenario, after.Scenario)...)
}

// apartBy says that two numbers differ by more than a share of the larger.
func apartBy(a, b, share float64) bool { return max(a, b)-min(a, b) > share*max(a, b) }

// runPart is something that numbers of a run depend on.
type runPart struct {
	what     string
	compared bool // it is what one compares runs for
	of       func(bench.Run) string
}

var (
	runSeed     = runPart{"seed", false, func(r bench.Run) string { return fmt.Sprint(r.Seed) }}
	runObserved = runPart{"observed", false, func(r bench.Run) string { return observedBy(r.Feed, r.Observed) }}
	runFeed     = runPart{"feed", false, func(r bench.Run) string { return cmp.Or(r.Feed, bench.FeedInformers) }}
)

// observedBy says who told when a change had arrived: the kernel, or, in older runs with informers, the subject's syncs.
func observedBy(feed, observed string) string {
	if observed == "" && feed != bench.FeedAPI {
		return "syncs"
	}
	return bench.ObservedKernel
}

// runParts are what a number of a run depends on, beside what was run: first what one would call a run after.
var runParts = []runPart{
	{"kernel", false, func(r bench.Run) string { return r.Versions.Kernel }},
	{"synclab", true, func(r bench.Run) string { return r.Versions.Synclab }},
	{"kube-proxy", true, func(r bench.Run) string { return r.Versions.KubeProxy }},
	{"iptables-legacy", false, func(r bench.Run) string { return plainVersion(r.Versions.IPTablesLegacy) }},
	{"iptables-nft", false, func(r bench.Run) string { return plainVersion(r.Versions.IPTablesNft) }},
	{"nft", false, func(r bench.Run) string { return plainVersion(r.Versions.Nft) }},
	{"CPU", false, func(r bench.Run) string { return r.Machine.CPU }},
	{"CPUs", false, func(r bench.Run) string { return numberOf(float64(r.Machine.CPUs), "count") }},
	{"memory", false, func(r bench.Run) string { return numberOf(float64(r.Machine.MemoryBytes), "B") }},
	{"OS", false, func(r bench.Run) string { return r.Machine.OS }},
	{"Go", false, func(r bench.Run) string { return r.Versions.Go }},
	{"user", false, func(r bench.Run) string {
		if r.Machine.UserNamespace {
			return "ordinary"
		}
		return "root"
	}},
}

func numberOf(v float64, unit string) string {
	if v == 0 {
		return ""
	}
	return Format(v, unit)
}

// plainVersion takes the version out of what a tool says of itself: "iptables v1.8.9 (legacy)".
func plainVersion(text string) string {
	words := strings.Fields(text)
	i := slices.IndexFunc(words, func(w string) bool { return len(w) > 1 && w[0] == 'v' && w[1] >= '0' && w[1] <= '9' })
	if i < 0 {
		return text
	}
	return words[i]
}

// unspokenFields of a scenario change nothing that is measured, or are spoken of elsewhere.
var unspokenFields = []string{"name", "description", "labels", "seed", "thresholds", "targets"}

// unlikeFields are the fields in which two scenarios differ, by the paths that --set takes.
func unlikeFields(before, after scenarios.Scenario) []Unlike {
	a, b := scenarioFields(before), scenarioFields(after)
	var out []Unlike
	paths := append(slices.Collect(maps.Keys(a)), slices.Collect(maps.Keys(b))...)
	slices.SortFunc(paths, func(a, b string) int { return naturalPaths(a, b) })
	for _, path := range slices.Compact(paths) {
		if a[path] != b[path] {
			out = append(out, Unlike{What: path, Before: cmp.Or(a[path], "none"), After: cmp.Or(b[path], "none")})
		}
	}
	return out
}

// naturalPaths orders steps.2 before steps.10.
func naturalPaths(a, b string) int {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(x), len(y)) {
		if c := compareValues(x[i], y[i]); c != 0 {
			return c
		}
	}
	return len(x) - len(y)
}

// scenarioFields are a scenario's values by path, through its own YAML: durations come with their units.
func scenarioFields(s scenarios.Scenario) map[string]string {
	out := map[string]string{}
	text, err := s.YAML()
	if err != nil {
		return out
	}
	var fields map[string]any
	if yaml.Unmarshal(text, &fields) != nil {
		return out
	}
	for name, value := range fields {
		if !slices.Contains(unspokenFields, name) {
			flatten(name, value, out)
		}
	}
	return out
}

func flatten(path string, value any, into map[string]string) {
	switch v := value.(type) {
	case map[string]any:
		if len(v) == 0 {
			into[path] = "{}"
		}
		for name, inner := range v {
			flatten(path+"."+name, inner, into)
		}
	case []any:
		for i, inner := range v {
			flatten(fmt.Sprintf("%s.%d", path, i), inner, into)
		}
	default:
		into[path] = fmt.Sprint(v)
	}
}
