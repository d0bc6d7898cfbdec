package scenarios

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits that other packages and several rules share.
const (
	// MaxServices is about the number of addresses in the default service network, a /12.
	MaxServices = 1_000_000
	// MaxEndpoints is one endpoint of a Service on each node of the largest
	// cluster that Kubernetes supports.
	MaxEndpoints = 5_000
	// MaxTotalEndpoints keeps the simulated cluster within a few GiB: an
	// endpoint takes several hundred bytes in each of its copies.
	MaxTotalEndpoints = 10_000_000
	// MaxDuration is the longest that a scenario's open-loop steps may take.
	MaxDuration = 24 * time.Hour
	// maxCells bounds a sweep: each cell is a separate run.
	maxCells = 1_000
	maxSteps = 1_000
	maxRate  = 100_000
)

// rule limits a single value, whatever the other values are.
type rule struct {
	words    []string // one of these, if any
	pattern  *regexp.Regexp
	min, max float64 // of numbers; durations in nanoseconds
	above    bool    // min itself is not allowed
	orUnset  bool    // zero means: not set
	preset   any     // the default, if it does not depend on other fields
	why      string  // why these limits
}

var (
	oneWord = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	// subjectName excludes quotes and line ends, as tables show it. An empty name is checked elsewhere.
	subjectName  = regexp.MustCompile(`^([a-z0-9.:@-]+/?[a-zA-Z0-9./:+-]*)?$`)
	oneInvariant = regexp.MustCompile(`^I([1-9]|1[0-4])$`)
	oneLine      = regexp.MustCompile(`^[^\r\n]*$`)
	shortText    = regexp.MustCompile(`^[^\r\n]{0,64}$`)
	share        = rule{min: 0, max: 1, why: "it is a share: 0.25 is a quarter"}
	anything     = rule{}
)

func count(low, high int, why string) rule {
	return rule{min: float64(low), max: float64(high), why: why}
}

func between(low, high time.Duration, why string) rule {
	return rule{min: float64(low), max: float64(high), why: why}
}

func (r rule) unset() rule        { r.orUnset = true; return r }
func (r rule) or(preset any) rule { r.preset = preset; return r }

// rules holds the rule of each path, with N for an index and * for a map's key. Those of steps are stepRules.
var rules = map[string]rule{
	"name":        {pattern: oneWord, why: "files are named after it: small letters, digits and -, at most 63"},
	"description": {pattern: oneLine, why: "lists show it on one line"},
	"labels.N":    {pattern: oneWord, why: "a label is one word of small letters, digits and -"},
	"seed":        anything,

	"shape.services":               count(1, MaxServices, "the default service network numbers about as many"),
	"shape.namespaces":             count(1, 10_000, "the most that Kubernetes is tested with").or(10),
	"shape.nodes":                  count(1, 15_000, "three times what Kubernetes supports").or(100),
	"shape.zones":                  count(1, 100, "more than any region has"),
	"shape.sharedPods":             count(0, MaxEndpoints, "as many as a Service may have; 0 means that each Service has its own"),
	"shape.ports":                  count(1, 100, "an EndpointSlice holds at most 100 ports").or(1),
	"shape.endpoints.distribution": {words: []string{"fixed", "uniform", "zipf"}, preset: "fixed"},
	"shape.endpoints.count":        count(1, MaxEndpoints, "for Services without endpoints see shape.withoutEndpoint; the most is one on each node of the largest supported cluster"),
	"shape.endpoints.min":          count(0, MaxEndpoints, "the most is one on each node of the largest supported cluster"),
	"shape.endpoints.max":          count(1, MaxEndpoints, "the most is one on each node of the largest supported cluster").unset(),
	"shape.endpoints.skew":         {min: 1, max: 10, above: true, orUnset: true, why: "at 1 and below, Zipf's sum has no limit"},
	"shape.types.*":                share,
	"shape.protocols.*":            share,
	"shape.families.N":             {words: []string{"IPv4", "IPv6"}},
	"shape.externalIPs":            share,
	"shape.sourceRanges":           share,
	"shape.affinity":               share,
	"shape.internalLocal":          share,
	"shape.externalLocal":          share,
	"shape.withoutEndpoint":        share,
	"shape.notReady":               share,
	"shape.terminating":            share,
	"shape.topologyHints":          share,
	"shape.withoutTargetRef":       share,
	"shape.serviceCIDRs.N":         anything, // fit.go
	"shape.podCIDRs.N":             anything, // fit.go
	"shape.podNetwork":             {words: []string{"", "routed", "bridge", "vxlan"}},

	"proxy.policy":              {words: []string{"", "token-bucket", "completion-to-start"}},
	"proxy.burst":               count(1, 1_000, "a bucket that never empties limits nothing").unset(),
	"proxy.minSyncPeriod":       between(time.Millisecond, time.Hour, "below, nothing is held back; above, nothing is synced").unset(),
	"proxy.syncPeriod":          between(10*time.Millisecond, 24*time.Hour, "it is also the time between two drift checks, and before a retry").unset(),
	"proxy.masqueradeAll":       anything,
	"proxy.nodePortAddresses.N": anything, // validate.go
	"proxy.localhostNodePorts":  anything,

	"sweep.N.field":    anything, // sweep.go
	"sweep.N.values.N": anything,
	"sweep.N.from":     count(1, MaxTotalEndpoints, "a geometric series begins above 0").unset(),
	"sweep.N.to":       count(1, MaxTotalEndpoints, "a geometric series begins above 0").unset(),
	"sweep.N.points":   count(2, 100, "each point is a separate run").unset(),

	"targets.N.subject":  {pattern: subjectName, why: "a subject is called proxier/backend"},
	"targets.N.baseline": {pattern: subjectName, why: "a subject is called proxier/backend"},
	"targets.N.services": count(1, MaxServices, "the default service network numbers about as many"),
	"targets.N.figure":   {words: []string{"reaction", "cold_start", "full_sync", "partial_sync", "peak_rss", "child_peak_rss", "total_peak_rss", "first_packet"}},
	"targets.N.minRatio": {min: 0, max: 1e6, above: true, orUnset: true, why: "it is a ratio: 25 is 25 times less"},
	"targets.N.once":     anything,
	"targets.N.atMost":   between(time.Microsecond, MaxDuration, "it is how long something may take").unset(),
	"targets.N.exponent": {min: -10, max: 10, orUnset: true, why: "1 is linear growth"},
	"targets.N.from":     count(1, MaxServices, "the smaller size of two").unset(),

	"thresholds.*": {min: 0, max: 100, why: "it is a share of the value before: 0.1 allows 10 % more"},
}

func init() {
	for path, r := range stepRules {
		rules[join("steps.N", path)] = r
	}
}

// mapKeys are the keys of the maps.
var mapKeys = map[string][]string{
	"shape.types":     {"NodePort", "LoadBalancer", "Headless", "ExternalName"},
	"shape.protocols": {"UDP", "SCTP"},
	"thresholds":      append([]string{ThresholdAll}, thresholdFigures...),
}

// ruleOf finds the rule of a path with indices and keys in it.
func ruleOf(path string) (rule, bool) {
	if _, isMap := mapKeys[parentOf(path)]; isMap {
		path = parentOf(path) + ".*"
	}
	elements := strings.Split(path, ".")
	for i, e := range elements {
		if _, err := strconv.Atoi(e); err == nil {
			elements[i] = "N"
		}
	}
	r, ok := rules[strings.Join(elements, ".")]
	return r, ok
}

// check returns "" when the value obeys the rule, else what is wrong.
func (r rule) check(v reflect.Value) string {
	switch {
	case v.Kind() == reflect.String && r.words != nil:
		if slices.Contains(r.words, v.String()) {
			return ""
		}
		return isOneOf(v.String(), r.allowedWords())
	case v.Kind() == reflect.String && r.pattern != nil:
		if !r.pattern.MatchString(v.String()) {
			return fmt.Sprintf("%s is not allowed: %s", quote(v.String()), r.why)
		}
		return ""
	case r.max == 0 || (r.orUnset && v.IsZero()):
		return ""
	}
	var n float64
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		n = float64(v.Int())
	case reflect.Float64:
		n = v.Float()
	default:
		return ""
	}
	// Written so that NaN fails.
	if n <= r.max && (n > r.min || (n == r.min && !r.above)) {
		return ""
	}
	return fmt.Sprintf("%s is not allowed: %s (%s)", show(n, v.Type()), r.span(v.Type()), r.why)
}

// span returns "1 to 100", or "above 0, to 1".
func (r rule) span(t reflect.Type) string {
	if r.above {
		return fmt.Sprintf("above %s, to %s", show(r.min, t), show(r.max, t))
	}
	return fmt.Sprintf("%s to %s", show(r.min, t), show(r.max, t))
}

func (r rule) allowedWords() []string {
	return slices.DeleteFunc(slices.Clone(r.words), func(w string) bool { return w == "" })
}

// show prints a number as its type is written: 1h0m0s, 0.25, 1,000,000.
func show(n float64, t reflect.Type) string {
	if t == durationType {
		return showDuration(time.Duration(n))
	}
	if n != float64(int64(n)) {
		return strconv.FormatFloat(n, 'g', -1, 64)
	}
	return thousands(int64(n))
}

// showDuration leaves out the zeros that time.Duration prints: 1h, not 1h0m0s.
func showDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func thousands[I int | int64](n I) string {
	digits := strconv.FormatInt(int64(n), 10)
	first := len(digits) % 3
	if digits[0] == '-' {
		first = 1 + (len(digits)-1)%3
	}
	var b strings.Builder
	b.WriteString(digits[:first])
	for i := first; i < len(digits); i += 3 {
		if b.Len() > 0 && b.String() != "-" {
			b.WriteByte(',')
		}
		b.WriteString(digits[i : i+3])
	}
	return b.String()
}
