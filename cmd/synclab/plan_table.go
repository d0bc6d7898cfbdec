package main

import (
	"fmt"
	"math"

	"synclab/reports"
	"synclab/reports/capacity"
	"synclab/reports/model"
)

// promiseWords are what tables call the promises.
var promiseWords = map[string]string{
	capacity.ProgrammingP99: "npl p99", capacity.FirstPacketP99: "1st packet", capacity.CPU: "CPU", capacity.Memory: "memory", capacity.Start: "start",
}

// promiseValue is a value of a promised quantity with its unit.
func promiseValue(name string, v float64) string {
	switch name {
	case capacity.CPU:
		return plainNumber(v) + " CPUs"
	case capacity.Memory:
		return reports.Format(v, "B")
	}
	return reports.Format(v, "s")
}

// inUse is the answer for the subject that is in use today.
func inUse(a *capacity.Answer) *capacity.SubjectAnswer {
	for i := range a.Subjects {
		if len(a.Question.Subjects) > 0 && a.Subjects[i].Name == a.Question.Subjects[0] {
			return &a.Subjects[i]
		}
	}
	return &a.Subjects[0]
}

// planTable has a row a subject: how far it holds as it is set and as it should be, what breaks first, and what to set.
func planTable(a *capacity.Answer) [][]string {
	upTo := "holds up to"
	if a.Unit != capacity.InServices { // which go without saying
		upTo += ", " + string(a.Unit)
	}
	rows := [][]string{{"subject", upTo, "basis", "first to break", "as set today", "minSyncPeriod", "memory limit"}}
	for i := range a.Subjects {
		one := &a.Subjects[i]
		set := "-"
		if len(one.Limits) > 0 {
			set = limitText(capacity.Largest(one.Limits), a.Unit) // its bounds are those of all, as beside it
		}
		rows = append(rows, []string{
			one.Name, limitText(one.Largest, a.Unit), basisText(one.Largest), firstToBreak(one.Largest), set, settingText(one.Recommended), reports.Format(float64(one.MemoryLimit), "B"),
		})
	}
	return rows
}

// limitText is how far a promise holds, and between which bounds that lies.
func limitText(l capacity.Limit, unit capacity.Unit) string {
	count := func(v float64) string {
		if v < 100 && !unit.Whole() {
			return plainNumber(rounded(v))
		}
		return roundedText(v)
	}
	switch {
	case l.Promise == "":
		return "-"
	case l.Never && l.Smaller && l.Reach.Median > 0:
		return "not today's; " + count(l.Reach.Median)
	case l.Never:
		return "not today's"
	case l.Unbounded:
		return "≥ " + count(l.Reach.Median)
	}
	return fmt.Sprintf("%s (%s … %s)", count(l.Reach.Median), count(l.Reach.Low), count(l.Reach.High))
}

// rounded to two digits: more are not known.
func rounded(v float64) float64 {
	if v <= 0 {
		return v
	}
	unit := math.Pow(10, math.Floor(math.Log10(v))-1)
	return math.Round(v/unit) * unit
}

// roundedText is a number of whole things.
func roundedText(v float64) string {
	if v >= 100 {
		v = rounded(v)
	}
	return reports.Grouped(int64(math.Round(v)))
}

// basisText says what a limit rests on, and how far beyond the measured sizes it is.
func basisText(l capacity.Limit) string {
	if times := math.Round(l.Reach.Beyond*10) / 10; l.Reach.Basis == model.Extrapolated && times > 1 {
		text := fmt.Sprintf("%s %s×", l.Reach.Basis, plainNumber(times))
		switch {
		case l.Reach.Below:
			text += " below"
		case l.Reach.Changed:
			text += " changes of a sync"
		}
		return text
	}
	return string(l.Reach.Basis)
}

func firstToBreak(l capacity.Limit) string {
	switch {
	case l.Promise == "":
		return "-"
	case l.Unbounded:
		return "none found"
	}
	return promiseWords[l.Promise]
}

// whyLines say of each subject which part of its cost it is that breaks the promise.
func whyLines(a *capacity.Answer) []string {
	var lines []string
	for i := range a.Subjects {
		if l := a.Subjects[i].Largest; l.Why != "" && !l.Unbounded {
			lines = append(lines, fmt.Sprintf("%s, %s: %s", a.Subjects[i].Name, promiseWords[l.Promise], l.Why))
		}
	}
	return lines
}

// settingText is the recommended minSyncPeriod, and whether every promise holds with it.
func settingText(s capacity.Setting) string {
	text := s.Policy.MinSyncPeriod.String()
	switch {
	case len(s.Outlook.Breaks) > 0:
		return text + " (not enough)"
	case !s.Holds:
		return text + " (not for sure)"
	}
	return text
}

// What SIG-Scalability tests Kubernetes with. Beyond these the Service proxy is not the only thing to look at.
// https://github.com/kubernetes/community/blob/main/sig-scalability/configs-and-limits/thresholds.md
const (
	testedServices  = 10_000
	testedEndpoints = 250 // of a Service
	testedNodes     = 5_000
	testedPods      = 150_000
)

// beyondTested says where the largest cluster that was asked about is beyond what Kubernetes itself is tested with.
func beyondTested(a *capacity.Answer) []string {
	c := a.Question.Today
	if a.Target != nil {
		c = *a.Target
	}
	var remarks []string
	add := func(is float64, tested int64, what string) {
		if is > float64(tested) {
			remarks = append(remarks, fmt.Sprintf("%s %s: Kubernetes is tested with %s (SIG-Scalability's thresholds); other parts of the cluster may be what limits it, and are not in this plan",
				roundedText(is), what, reports.Grouped(tested)))
		}
	}
	add(float64(c.Services), testedServices, "Services")
	add(c.Endpoints, testedEndpoints, "endpoints of a Service")
	add(float64(c.Nodes), testedNodes, "nodes")
	add(float64(c.Services)*c.Endpoints, testedPods, "endpoints, if each is a pod of its own")
	return remarks
}
