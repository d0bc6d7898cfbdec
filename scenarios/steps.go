package scenarios

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Role is what the work of a step counts as in sums over a run. Steps of other kinds, such as a probe or a restart, have
// none.
type Role string

const (
	Cold   Role = "cold"   // the first such step is the cold start
	Change Role = "change" // the step changes the cluster
	Wait   Role = "wait"   // the end of the step before: the subject converges
	Look   Role = "look"   // the step only reads what the step before left
)

// Belongs reports whether a step's work is that of the step before it.
func (r Role) Belongs() bool { return r == Wait || r == Look }

// RoleOf returns the role of a kind of step.
func RoleOf(kind string) Role {
	f, _ := fieldNamed(stepType, kind)
	return Role(f.tag.Get("role"))
}

// StepName names a step in records: "2:churn" is the one with index 1, a churn.
func StepName(index int, kind string) string { return fmt.Sprintf("%d:%s", index+1, kind) }

// StepOf parses the name of a step, or of a fault, which begins with one. number counts from 1; 0: the name has none.
func StepOf(name string) (number int, kind string) {
	text, kind, _ := strings.Cut(name, ":")
	number, _ = strconv.Atoi(text)
	return number, kind
}

// SortedSteps returns the names of steps in the order of their numbers.
func SortedSteps[V any](byName map[string]V) []string {
	return slices.SortedFunc(maps.Keys(byName), func(a, b string) int {
		i, _ := StepOf(a)
		j, _ := StepOf(b)
		return cmp.Or(i-j, strings.Compare(a, b))
	})
}

// Kind is the step's name in YAML: the field that is set. It is "" unless exactly one is set.
func (st Step) Kind() string {
	kind, v := "", reflect.ValueOf(st)
	for _, f := range fieldsOf(stepType) {
		if v.Field(f.index).IsNil() {
			continue
		}
		if kind != "" {
			return ""
		}
		kind = f.name
	}
	return kind
}

// Smaller returns a copy of a step with a smaller size, as less says; false: it has no size, or cannot be smaller.
func (st Step) Smaller(less func(int) int) (Step, bool) {
	kind, ok := fieldNamed(stepType, st.Kind())
	if !ok {
		return st, false
	}
	form := reflect.ValueOf(&st).Elem().Field(kind.index)
	copied := reflect.New(kind.typ.Elem())
	copied.Elem().Set(form.Elem())
	form.Set(copied)
	for _, f := range fieldsOf(kind.typ.Elem()) {
		if !f.has("size") {
			continue
		}
		size := copied.Elem().Field(f.index)
		if n := int64(less(int(size.Int()))); 0 < n && n < size.Int() {
			size.SetInt(n)
			return st, true
		}
	}
	return st, false
}

// SetTimeouts sets how long steps wait until the subject converges.
func (s *Scenario) SetTimeouts(d time.Duration) {
	visit(reflect.ValueOf(s.Steps), "", func(path string, v reflect.Value) {
		if strings.HasSuffix(path, ".timeout") {
			v.SetInt(int64(d))
		}
	})
}

// walk goes through the steps of a scenario in order: what a step can do depends on those before it.
type walk struct {
	*Scenario
	problems  Problems
	durations []time.Duration
	total     time.Duration // of the allowed ones
	added     int64         // endpoints, at most, if no address is used twice
	created   int           // Services
	lost      int           // Nodes
	scaled    float64       // endpoints of the Service that scale changes
	streams   bool          // traffic runs

	// Of the current step: its path, and how long its open loop takes from its first to its last due change.
	at      string
	seconds float64
}

func (s *Scenario) walkSteps() *walk {
	w := &walk{Scenario: s, scaled: float64(s.Shape.Endpoints.Count)}
	for i, st := range s.Steps {
		w.at, w.seconds = fmt.Sprintf("steps.%d.%s", i, st.Kind()), 0
		before := *w
		w.step(st)
		if before.created == 0 && st.Create == nil && st.Fault == nil { // it takes time, and has no other effect
			w.problems, w.lost, w.streams = before.problems, before.lost, before.streams
			w.refuse("comes before any create: there are no Services yet")
		}
		// 1e9 s is far above any limit, and within what a Duration can hold.
		took := time.Duration(min(w.seconds, 1e9) * float64(time.Second))
		w.durations = append(w.durations, took)
		if took > MaxDuration {
			w.problems = slices.Insert(w.problems, len(before.problems), Problem{Path: w.at, Text: fmt.Sprintf("takes %s: want at most %s, or a higher rate",
				showDuration(took.Round(time.Second)), showDuration(MaxDuration))})
		} else {
			w.total += took
		}
	}
	return w
}

// refuse adds a problem of the current step.
func (w *walk) refuse(text string) { w.problems.add(w.at, text) }

// needEndpoints refuses a step that may find no Service with endpoints.
func (w *walk) needEndpoints() {
	if w.usable(w.created) == 0 {
		w.refuse("may find no Service with endpoints: want more Services, or smaller shares in shape.withoutEndpoint, Headless and ExternalName")
	}
}

// Durations returns how long the open loop of each step takes by itself, from its first to its last due change. It is
// 0 for steps whose length depends on the subject. Rollouts are estimated for Services of the mean size.
func (s *Scenario) Durations() []time.Duration { return s.walkSteps().durations }

// checkSteps goes through the steps in order, and refuses those that find nothing to work on.
func (s *Scenario) checkSteps(ps *Problems) {
	w := s.walkSteps()
	*ps = append(*ps, w.problems...)
	if w.created == 0 {
		ps.add("steps", "have no create: there would be no Services")
	}
	if w.total > MaxDuration {
		ps.add("steps", fmt.Sprintf("take %s together: want at most %s", showDuration(w.total.Round(time.Second)), showDuration(MaxDuration)))
	}
}

// usable returns how many of the created Services, at least, have endpoints that a proxy serves. Random shares may
// miss by a few Services.
func (s *Scenario) usable(created int) int {
	share := (1 - s.Shape.WithoutEndpoint) * (1 - s.Shape.Types["ExternalName"] - s.Shape.Types["Headless"])
	if e := s.Shape.Endpoints; e.Distribution == "uniform" && e.Min == 0 {
		share *= float64(e.Max) / float64(e.Max+1)
	}
	if share == 1 {
		return created
	}
	return max(0, int(float64(created)*(share-0.03)-2))
}
