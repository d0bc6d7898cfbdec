package records

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"synclab/bench/raw"
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

// Unlikes lists the differences of two runs: versions and machine, then the scenario.
func Unlikes(before, after raw.Run) []Unlike {
	var out []Unlike
	add := func(what, a, b string, compared bool) {
		if a != b {
			out = append(out, Unlike{what, cmp.Or(a, "none"), cmp.Or(b, "none"), compared})
		}
	}
	for _, part := range append(slices.Clone(RunParts), RunSeed, RunFeed, RunObserved) {
		if part.What != "memory" || apart(float64(before.Machine.MemoryBytes), float64(after.Machine.MemoryBytes)) {
			add(part.What, part.Of(before), part.Of(after), part.Compared)
		}
	}
	add("scenario", before.Scenario.Name, after.Scenario.Name, false)
	if before.Scenario.Name != after.Scenario.Name {
		return out // different scenarios have different steps
	}
	return append(out, unlikeFields(before.Scenario, after.Scenario)...)
}

// apart reports whether two sizes of memory differ by more than 2 % of the larger: equal machines differ by what their
// kernels keep for themselves.
func apart(a, b float64) bool { return max(a, b)-min(a, b) > 0.02*max(a, b) }

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
		if c := CompareValues(x[i], y[i]); c != 0 {
			return c
		}
	}
	return len(x) - len(y)
}

// scenarioFields are a scenario's values by path, from its YAML: durations have units.
func scenarioFields(s scenarios.Scenario) map[string]string {
	out := map[string]string{}
	var fields map[string]any
	if text, err := s.YAML(); err != nil || yaml.Unmarshal(text, &fields) != nil {
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

// Text is "kernel: 6.18.0 → 6.1.0".
func (u Unlike) Text() string { return u.What + ": " + u.Before + " → " + u.After }
