package sections

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"

	"synclab/bench/raw"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// warning is a caveat. badge is its short form at the main figures of a series; without a series, of all.
type warning struct{ text, series, badge string }

// warnings collects the caveats of the report.
func warnings(c *records.Collection, s *Summary) []warning {
	var out []warning
	for i, l := range c.Runs {
		if l.Info.Status != raw.StatusComplete {
			out = append(out, warning{text: doc.Sentence(incompleteRun, warningWords{Label: c.Labels[i], Status: l.Info.Status, Reason: l.Info.Reason}), badge: "incomplete run"})
		}
		for _, remark := range l.Info.LeftOut {
			out = append(out, warning{text: doc.UpperFirst(remark), badge: "steps left out"})
		}
		for _, w := range l.Warnings {
			out = append(out, warning{text: "run " + c.Labels[i] + ": " + w})
		}
	}
	out = append(out, unobservedStalls(c)...)
	out = append(out, unsteadyCaches(c)...)
	for _, one := range c.Series {
		if n := c.Failed[one.Name]; n > 0 {
			out = append(out, warning{doc.Sentence(failedDurations, warningWords{Series: one.Name, Failed: n}), one.Name, doc.Plural(n, "failed sync")})
		}
	}
	for _, one := range c.Series {
		if shownByPackets(one) {
			out = append(out, warning{doc.Sentence(byPackets, warningWords{Series: one.Name}), one.Name, "seen by packets"})
		}
	}
	out = append(out, ruleMismatches(c)...)
	out = append(out, differentMachines(c)...)
	few := 0
	for _, row := range s.Rows {
		if row.Repetitions < estimate.Enough && row.Unit == "s" {
			few++
		}
	}
	if few > 0 {
		out = append(out, warning{text: doc.Sentence(fewRepetitions, warningWords{Groups: few, Enough: estimate.Enough})}) // notes at the figures say so
	}
	for _, g := range s.Growth {
		switch g.Badge() { // it stands at the exponents: the main figures have none
		case twoSizes:
			out = append(out, warning{text: doc.Sentence(fewSizes, g)})
		case bends:
			out = append(out, warning{text: doc.Sentence(noPowerLaw, g)})
		}
	}
	return out
}

// shownByPackets reports whether packets showed when a subject's changes were there.
func shownByPackets(one *records.Series) bool {
	for _, cell := range one.Cells {
		if slices.ContainsFunc(cell.Records, func(r records.Record) bool { return r.Method == raw.ByPackets }) {
			return true
		}
	}
	return false
}

// ruleMismatches compares, after each settle, the kernel's rule counts with the expected numbers.
func ruleMismatches(c *records.Collection) []warning {
	type count struct {
		records.Place
		table string
	}
	var out []warning
	for _, s := range c.Series {
		for _, cell := range c.Cells {
			samples := s.Cells[cell.ID()]
			if samples == nil {
				continue
			}
			kernel := map[count]float64{}
			told := ruleWords{Series: s.Name, Services: cell.Services}
			for _, pass := range []raw.Metric{raw.RulesKernel, raw.RulesExpected} {
				for _, r := range samples.Records {
					if r.Metric != pass {
						continue
					}
					key := count{records.Place{Run: r.Run, Rep: r.Rep, Step: r.Step, Family: r.Family}, r.Table}
					if pass == raw.RulesKernel {
						kernel[key] = r.Value
						continue
					}
					if have, ok := kernel[key]; ok {
						told.Compared++
						if have != r.Value {
							told.Differ++
							told.Table, told.Kernel, told.Expected = r.Table, have, r.Value
						}
					}
				}
			}
			if told.Differ > 0 {
				out = append(out, warning{doc.Sentence(rulesDiffer, told), s.Name, "unexpected rule counts"})
			}
		}
	}
	return out
}

// maxNamed bounds how many items of a list a sentence names.
const maxNamed = 6

// differentMachines warns if compared runs differ in a condition that their numbers depend on.
func differentMachines(c *records.Collection) []warning {
	var out []warning
	first := c.Runs[0].Info
	for i, l := range c.Runs[1:] {
		var what []string
		for _, u := range records.Unlikes(first, l.Info) {
			cells := u.What == "scenario" || u.What == records.SizeField || strings.HasPrefix(u.What, "sweep.") // the cells show these
			if !cells {
				what = append(what, u.What)
			}
		}
		if left := len(what) - maxNamed; left > 0 {
			what = append(what[:maxNamed], fmt.Sprintf("%d more", left))
		}
		if len(what) > 0 {
			out = append(out, warning{text: doc.Sentence(machinesDiffer, warningWords{Label: c.Labels[i+1], First: c.Labels[0], What: what}), badge: "runs differ"})
		}
	}
	return out
}

// Warnings.
var (
	incompleteRun = runTemplate(`run {{.Label}}: its status is {{or .Status "unknown"}}, not complete{{with .Reason}} ({{.}}){{end}}; ` +
		`the report covers the records until then`)
	byPackets       = runTemplate(`{{.Series}}: Synclab knows no rules of this subject. New flows to the Services showed when a change was there; between two flows to a Service it is not known. Changes that clients with affinity cannot notice are left out`)
	failedDurations = runTemplate(`{{.Series}}: {{plural .Failed "sync"}} failed; their durations are left out`)
	rulesDiffer     = runTemplate(`{{.Series}} at {{number .Services}} Services: {{.Differ}} of {{.Compared}} rule counts differ from the expected numbers ` +
		`(table {{.Table}}: the kernel has {{count .Kernel}}, expected are {{count .Expected}})`)
	machinesDiffer = runTemplate(`run {{.Label}} differs from {{.First}} in {{join .What}}: compare with care`)
	unsteady       = runTemplate(`the machine's caches were not equally free: on {{.CPU}}, one load from 4 MiB took {{.Least}} beside one repetition, and {{.Most}} beside another. ` +
		`Other tenants of the machine may be the cause. Durations may differ for the same reason`)
	fewRepetitions = runTemplate(`{{plural .Groups "group"}} of durations have fewer than {{.Enough}} repetitions: they show the observed range, ` +
		`without a 95 % interval; for intervals, use --reps {{.Enough}}`)
	fewSizes   = runTemplate(`growth of {{.Label}} ({{.Series}}) is fitted to 2 sizes only`)
	noPowerLaw = runTemplate(`growth of {{.Label}} ({{.Series}}) does not follow a power law: the fit is off by {{signed .Misfit}} ` +
		`at {{count .MisfitAt}} Services; the exponents between sizes are {{exponents .Power}}`)
)

// runFuncs write the values that only the texts of this package have.
var runFuncs = template.FuncMap{
	"bytes":     func(v float64) string { return doc.Format(v, "B") },
	"count":     func(v float64) string { return doc.Format(v, "count") },
	"exponents": LocalText,
	"share":     shareText,
	"signed":    signedPercent,
}

func runTemplate(text string) *template.Template {
	return template.Must(template.New("run").Funcs(doc.SentenceFuncs).Funcs(runFuncs).Parse(text))
}

// warningWords are the values of a warning about a run or a series.
type warningWords struct {
	Label, Status, Reason string   // of a run
	First                 string   // label of the first run
	What                  []string // differs from the first run
	Series                string
	Failed                int // syncs
	Groups                int // of durations, with fewer than Enough repetitions
	Enough                int
	CPU, Least, Most      string // load from a cache
}

// unsteadyFrom is the ratio of loads from a cache from which durations of two repetitions do not compare.
const unsteadyFrom = 2.0

// unsteadyCaches warns of a CPU whose caches were slower beside some repetitions than beside others.
func unsteadyCaches(c *records.Collection) []warning {
	all, worst := map[string][]float64{}, warningWords{}
	for _, samples := range c.Each() {
		beside := map[string]estimate.Sample{} // of each CPU
		for _, r := range samples.Records {
			if r.Metric == raw.CacheLoad { // each machine and each guest of a report has other caches
				of, cpu := records.Repetition{Run: r.Run, Rep: r.Rep}, fmt.Sprint(r.Kind, "\x00", r.Run, r.Params[raw.KernelField])
				if beside[cpu] == nil {
					beside[cpu] = estimate.Sample{}
				}
				beside[cpu][of] = append(beside[cpu][of], r.Value)
			}
		}
		for cpu, values := range beside {
			for _, both := range values {
				all[cpu] = append(all[cpu], slices.Max(both))
			}
		}
	}
	ratio := unsteadyFrom
	for _, cpu := range slices.Sorted(maps.Keys(all)) {
		if least, most := slices.Min(all[cpu]), slices.Max(all[cpu]); most >= ratio*least {
			ratio = most / least
			cpu, _, _ = strings.Cut(cpu, "\x00")
			worst = warningWords{CPU: cpu, Least: doc.Format(least, "s"), Most: doc.Format(most, "s")}
		}
	}
	if worst.CPU == "" {
		return nil
	}
	return []warning{{text: doc.Sentence(unsteady, worst), badge: "unsteady caches"}}
}

// ruleWords are the rule counts of a series in a cell. The last difference is the example.
type ruleWords struct {
	Series           string
	Services         int
	Differ, Compared int
	Table            string
	Kernel, Expected float64
}
