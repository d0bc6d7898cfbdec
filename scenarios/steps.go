package scenarios

import (
	"cmp"
	"fmt"
	"maps"
	"math"
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
	return f.role
}

// StepName names a step in records: "2:churn" is the one with index 1, a churn.
func StepName(index int, kind string) string { return fmt.Sprintf("%d:%s", index+1, kind) }

// StepOf parses the name of a step, or of a fault, which begins with one. number counts from 1; 0: the name has none.
func StepOf(name string) (number int, kind string) {
	text, kind, _ := strings.Cut(name, ":")
	number, err := strconv.Atoi(text)
	if err != nil {
		return 0, kind
	}
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

// Kind is the step's name in YAML: create, react, churn, rollout, scale, nodeLoss,
// restart, migrate, follow, fault, probe, traffic, check or settle. It is "" unless exactly one is set.
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

// Durations returns how long the open loop of each step takes by itself, from its first to its last due change. It is
// 0 for steps whose length depends on the subject. Rollouts are estimated for Services of the mean size.
func (s *Scenario) Durations() []time.Duration {
	durations := make([]time.Duration, len(s.Steps))
	created := 0
	largest := float64(s.Shape.Endpoints.Count) // of the Service that scale changes
	for i, st := range s.Steps {
		seconds := 0.0
		switch {
		case st.Create != nil:
			n := st.Create.Services
			if left := s.Shape.Services - created; n == 0 {
				n = max(left, 0)
			}
			created += n
			if st.Create.Rate > 0 {
				seconds = float64(n) / st.Create.Rate
			}
		case st.Churn != nil:
			seconds = float64(st.Churn.Events) / st.Churn.Rate
		case st.Rollout != nil:
			// A surge of a quarter makes four waves, but no wave is smaller than one endpoint.
			waves := min(math.Ceil(1/st.Rollout.Surge), math.Ceil(s.Shape.Endpoints.Mean()))
			seconds = waves * st.Rollout.Interval.Seconds()
		case st.Scale != nil:
			seconds = math.Abs(float64(st.Scale.To)-largest) / st.Scale.Rate
			largest = float64(st.Scale.To)
		case st.Follow != nil:
			seconds = st.Follow.For.Seconds()
		case st.Traffic != nil:
			seconds = st.Traffic.For.Seconds()
		case st.Fault != nil && st.Fault.Holds():
			seconds = st.Fault.For.Seconds()
		}
		// 1e9 s is far above any limit, and within what a Duration can hold.
		durations[i] = time.Duration(min(seconds, 1e9) * float64(time.Second))
	}
	return durations
}

// checkSteps goes through the steps in order, and refuses those that find nothing to work on.
func (s *Scenario) checkSteps(ps *Problems) {
	created, total := 0, time.Duration(0)
	lost, traffic := 0, false
	durations := s.Durations()
	for i, st := range s.Steps {
		path := fmt.Sprintf("steps.%d", i)
		at := join(path, st.Kind())
		if took := durations[i]; took > MaxDuration {
			ps.add(at, fmt.Sprintf("takes %s: want at most %s, or a higher rate", showDuration(took.Round(time.Second)), showDuration(MaxDuration)))
		} else {
			total += took
		}
		switch {
		case st.Create != nil:
			created = s.checkCreate(st.Create, at, created, ps)
		case st.Fault != nil:
			st.Fault.check(at, created, ps)
		case created == 0:
			ps.add(at, "comes before any create: there are no Services yet")
			continue
		case st.Traffic != nil:
			traffic = s.checkTraffic(st.Traffic, at, traffic, ps)
		case st.Rollout != nil && st.Rollout.Services > s.usable(created):
			ps.add(join(at, "services"), fmt.Sprintf("%s Services with endpoints may not exist: want at most %s", thousands(st.Rollout.Services), thousands(s.usable(created))))
		case st.NodeLoss != nil:
			if lost += st.NodeLoss.Nodes; lost >= s.Shape.Nodes {
				ps.add(join(at, "nodes"), fmt.Sprintf("%d lost Nodes in all leave none of shape.nodes, %d: want at most %d, as node-0 stays", lost, s.Shape.Nodes, s.Shape.Nodes-1))
			}
		case st.Churn != nil && st.Churn.Kind == "services":
		case (st.React != nil || st.Churn != nil || st.Scale != nil || st.Rollout != nil) && s.usable(created) == 0:
			ps.add(at, "may find no Service with endpoints: want more Services, or smaller shares in shape.withoutEndpoint, Headless and ExternalName")
		}
	}
	if created == 0 {
		ps.add("steps", "have no create: there would be no Services")
	}
	if total > MaxDuration {
		ps.add("steps", fmt.Sprintf("take %s together: want at most %s", showDuration(total.Round(time.Second)), showDuration(MaxDuration)))
	}
}

// checkTraffic returns whether a stream runs after the step.
func (s *Scenario) checkTraffic(t *Traffic, at string, runs bool, ps *Problems) bool {
	switch {
	case t.Stop && !runs:
		ps.add(at, "stops a stream, but none runs")
	case t.Stop && (t.Rate != 0 || t.Services != 0 || t.LongLived != 0 || t.For != 0):
		ps.add(at, "stops a stream: rate, services, longLived and for have no effect")
	case !t.Stop && runs:
		ps.add(at, "begins a second stream: stop the first one before")
	case !t.Stop && s.usable(s.Shape.Services) == 0:
		ps.add(at, "may find no Service with endpoints")
	}
	return !t.Stop
}

func (s *Scenario) checkCreate(c *Create, at string, created int, ps *Problems) int {
	left := s.Shape.Services - created
	switch {
	case left <= 0:
		ps.add(at, fmt.Sprintf("creates nothing: all %s Services of the shape exist already", thousands(s.Shape.Services)))
		return created
	case c.Services == 0:
		return s.Shape.Services
	case c.Services > left:
		ps.add(join(at, "services"), fmt.Sprintf("%s Services are more than shape.services leaves: want at most %s", thousands(c.Services), thousands(left)))
		return s.Shape.Services
	}
	return created + c.Services
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
