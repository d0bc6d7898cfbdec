package planning

import (
	"fmt"
	"math"

	"synclab/reports/capacity"
	"synclab/reports/doc"
	"synclab/reports/model"
)

// SLOWords are the names of SLOs in tables.
var SLOWords = map[string]string{
	capacity.ProgrammingP99: "npl p99", capacity.FirstPacketP99: "1st packet", capacity.CPU: "CPU", capacity.Memory: "memory", capacity.Start: "start",
}

// SLOValue formats a value of an SLO's quantity with its unit.
func SLOValue(name string, v float64) string {
	switch name {
	case capacity.CPU:
		return PlainNumber(v) + " CPUs"
	case capacity.Memory:
		return doc.Format(v, "B")
	}
	return doc.Format(v, "s")
}

// InUse returns the answer for the subject in use today.
func InUse(a *capacity.Answer) *capacity.SubjectAnswer {
	for i := range a.Subjects {
		if len(a.Question.Subjects) > 0 && a.Subjects[i].Name == a.Question.Subjects[0] {
			return &a.Subjects[i]
		}
	}
	return &a.Subjects[0]
}

// Table has a row per subject: its largest cluster with today's and the recommended settings, its first limit, and
// the settings.
func Table(a *capacity.Answer) [][]string {
	upTo := "SLOs met up to"
	if a.Unit != capacity.InServices { // the default unit
		upTo += ", " + string(a.Unit)
	}
	rows := [][]string{{"subject", upTo, "basis", "violated first", "with today's settings", "minSyncPeriod", "memory limit"}}
	for i := range a.Subjects {
		one := &a.Subjects[i]
		set := "-"
		if len(one.Limits) > 0 {
			set = limitText(capacity.Largest(one.Limits), a.Unit) // the smallest limit of all SLOs, as in the other column
		}
		rows = append(rows, []string{
			one.Name, limitText(one.Largest, a.Unit), basisText(one.Largest), firstViolated(one.Largest), set, settingText(one.Recommended), doc.Format(float64(one.MemoryLimit), "B"),
		})
	}
	return rows
}

// limitText formats the size up to which an SLO is met, with its interval.
func limitText(l capacity.Limit, unit capacity.Unit) string {
	count := func(v float64) string {
		if v < 100 && !unit.Whole() {
			return PlainNumber(rounded(v))
		}
		return roundedText(v)
	}
	switch {
	case l.SLO == "":
		return "-"
	case l.Never && l.Smaller && l.Size.Median > 0:
		return "violated today; " + count(l.Size.Median)
	case l.Never:
		return "violated today"
	case l.Unbounded:
		return "≥ " + count(l.Size.Median)
	}
	return fmt.Sprintf("%s (%s … %s)", count(l.Size.Median), count(l.Size.Low), count(l.Size.High))
}

// rounded rounds to two digits: more are not known.
func rounded(v float64) float64 {
	if v <= 0 {
		return v
	}
	unit := math.Pow(10, math.Floor(math.Log10(v))-1)
	return math.Round(v/unit) * unit
}

// roundedText formats a count.
func roundedText(v float64) string {
	if v >= 100 {
		v = rounded(v)
	}
	return doc.Grouped(int64(math.Round(v)))
}

// basisText formats the basis of a limit, and how far it is beyond the measured sizes.
func basisText(l capacity.Limit) string {
	if times := math.Round(l.Size.Beyond*10) / 10; l.Size.Basis == model.Extrapolated && times > 1 {
		text := fmt.Sprintf("%s %s×", l.Size.Basis, PlainNumber(times))
		switch {
		case l.Size.Below:
			text += " below"
		case l.Size.Changed:
			text += " in changes per sync"
		}
		return text
	}
	return string(l.Size.Basis)
}

func firstViolated(l capacity.Limit) string {
	switch {
	case l.SLO == "":
		return "-"
	case l.Unbounded:
		return "none found"
	}
	return SLOWords[l.SLO]
}

// WhyLines returns for each subject the part of its cost that violates the SLO.
func WhyLines(a *capacity.Answer) []string {
	var lines []string
	for i := range a.Subjects {
		if l := a.Subjects[i].Largest; l.Why != "" && !l.Unbounded {
			lines = append(lines, fmt.Sprintf("%s, %s: %s", a.Subjects[i].Name, SLOWords[l.SLO], l.Why))
		}
	}
	return lines
}

// settingText formats the recommended minSyncPeriod, and whether it meets every SLO.
func settingText(s capacity.Setting) string {
	text := s.Policy.MinSyncPeriod.String()
	switch {
	case len(s.Outlook.Violated) > 0:
		return text + " (violates an SLO)"
	case !s.Met:
		return text + " (may violate an SLO)"
	}
	return text
}

// The sizes that SIG Scalability tests Kubernetes with. Beyond them, the Service proxy is not the only possible limit.
// https://github.com/kubernetes/community/blob/main/sig-scalability/configs-and-limits/thresholds.md
const (
	testedServices  = 10_000
	testedEndpoints = 250 // per Service
	testedNodes     = 5_000
	testedPods      = 150_000
)

// BeyondTested returns remarks where the largest asked cluster exceeds the sizes that Kubernetes itself is tested with.
func BeyondTested(a *capacity.Answer) []string {
	c := a.Question.Today
	if a.Target != nil {
		c = *a.Target
	}
	var remarks []string
	add := func(is float64, tested int64, what string) {
		if is > float64(tested) {
			remarks = append(remarks, fmt.Sprintf("%s %s: Kubernetes is tested with %s (SIG Scalability's thresholds); other parts of the cluster may be the limit, and are not in this plan",
				roundedText(is), what, doc.Grouped(tested)))
		}
	}
	add(float64(c.Services), testedServices, "Services")
	add(c.Endpoints, testedEndpoints, "endpoints of a Service")
	add(float64(c.Nodes), testedNodes, "nodes")
	add(float64(c.Services)*c.Endpoints, testedPods, "endpoints, if each is a separate pod")
	return remarks
}
