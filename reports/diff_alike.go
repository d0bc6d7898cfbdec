package reports

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"synclab/bench/raw"
	"synclab/reports/doc"
	"synclab/scenarios"
)

// Unlike is a difference between the conditions of two runs.
type Unlike struct {
	What   string `json:"what"`
	Before string `json:"before"`
	After  string `json:"after"`
	// Compared is true for the usual reason to compare runs: the version of a proxier. Any other difference may
	// explain different results.
	Compared bool `json:"compared,omitempty"`
}

// unlikes lists the differences of two runs: versions and machine, then the scenario.
func unlikes(before, after raw.Run) []Unlike {
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
		return out // different scenarios have different steps
	}
	return append(out, unlikeFields(before.Scenario, after.Scenario)...)
}

// apartBy reports whether two numbers differ by more than a share of the larger.
func apartBy(a, b, share float64) bool { return max(a, b)-min(a, b) > share*max(a, b) }

// runPart is a property that a run's numbers depend on.
type runPart struct {
	what     string
	compared bool // the usual reason to compare runs
	of       func(raw.Run) string
}

var (
	runSeed     = runPart{"seed", false, func(r raw.Run) string { return fmt.Sprint(r.Seed) }}
	runObserved = runPart{"observed", false, func(r raw.Run) string { return observedBy(r.Feed, r.Observed) }}
	runFeed     = runPart{"feed", false, func(r raw.Run) string { return cmp.Or(r.Feed, raw.FeedInformers) }}
)

// observedBy is the source of the time when a change was visible: the kernel or, in older runs with informers, the
// subject's syncs.
func observedBy(feed, observed string) string {
	if observed == "" && feed != raw.FeedAPI {
		return "syncs"
	}
	return raw.ObservedKernel
}

// runParts are the conditions that a run's numbers depend on. Those that best name a run come first.
var runParts = []runPart{
	{"kernel", false, func(r raw.Run) string { return r.Versions.Kernel }},
	{"synclab", true, func(r raw.Run) string { return r.Versions.Synclab }},
	{"kube-proxy", true, func(r raw.Run) string { return r.Versions.KubeProxy }},
	{"iptables-legacy", false, func(r raw.Run) string { return plainVersion(r.Versions.IPTablesLegacy) }},
	{"iptables-nft", false, func(r raw.Run) string { return plainVersion(r.Versions.IPTablesNft) }},
	{"nft", false, func(r raw.Run) string { return plainVersion(r.Versions.Nft) }},
	{"CPU", false, func(r raw.Run) string { return r.Machine.CPU }},
	{"CPUs", false, func(r raw.Run) string { return numberOf(float64(r.Machine.CPUs), "count") }},
	{"memory", false, func(r raw.Run) string { return numberOf(float64(r.Machine.MemoryBytes), "B") }},
	{"OS", false, func(r raw.Run) string { return r.Machine.OS }},
	{"Go", false, func(r raw.Run) string { return r.Versions.Go }},
	{"user", false, func(r raw.Run) string {
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
	return doc.Format(v, unit)
}

// plainVersion extracts the version from a tool's output, such as "iptables v1.8.9 (legacy)".
func plainVersion(text string) string {
	words := strings.Fields(text)
	i := slices.IndexFunc(words, func(w string) bool { return len(w) > 1 && w[0] == 'v' && w[1] >= '0' && w[1] <= '9' })
	if i < 0 {
		return text
	}
	return words[i]
}

// unspokenFields of a scenario change no measured value, or are reported elsewhere.
var unspokenFields = []string{"name", "description", "labels", "seed", "thresholds", "targets"}

// unlikeFields are the fields in which two scenarios differ, as the paths of --set.
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

// scenarioFields are a scenario's values by path, from its YAML: durations have units.
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
