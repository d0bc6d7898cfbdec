package sections

import (
	"cmp"
	"math"
	"slices"
	"text/template"

	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// Sentences about packets, flows, faults and invariants. The templates of small parts come before their sentence.
var (
	packetsGrow = eventTemplate(`A packet to the last of {{plural .Services "Service"}} costs {{range $i, $p := .Costs}}{{if $i}}; {{end}}` +
		`{{seconds (last .)}} in {{.Series}}, {{with .PerRule}}{{slope .Slope}} a rule (95 % {{interval .}})` +
		`{{else with .PerService}}{{slope .Slope}} for each Service in front (95 % {{interval .}}){{end}}{{end}}.`)
	packetsFlat = eventTemplate(`A packet to {{if .Others}}the same Service{{else}}the last of {{plural .Services "Service"}}{{end}} costs ` +
		`{{range $i, $p := .Costs}}{{if $i}}; {{end}}{{seconds (last .)}} in {{.Series}}{{with .Flat}} ({{growth .}}){{end}}{{end}}. ` +
		`The growth from the first Service to the last is in brackets.`)

	flowOutcome = eventTemplate(`{{number .Flows}} {{.What}}`)
	flowSubject = eventTemplate(`{{.Series}}{{with .Outcomes}}: of {{plural $.Total.Flows "new flow"}} {{join .}}{{end}}` +
		`{{with .Total.AddedP99}} (p99 {{signed .}} at most, in step {{step $.Total}}){{end}}`)
	flowsClean = eventTemplate(`While {{.Size}} changed, none of {{plural .Flows "new flow"}} failed or was misrouted ` +
		`(each share is below {{share .AtMost}} with 95 % confidence, if flows are independent), and no long-lived flow broke, with {{join .With}}.`)
	flowsFailed = eventTemplate(`Flows failed or were misrouted while {{.Size}} changed, with {{list .With}}.`)
	unobserved  = eventTemplate(`Not observed: {{plural .Flows "flow"}} more, including packets of long-lived flows. The machine was too busy for their observer, or for flows that bypass the rules.`)
	// In tables:
	shareBound  = eventTemplate(`of {{number .Flows}}; the share is at most {{share .AtMost}}, with 95 % confidence, if flows fail independently`)
	fewRecorded = eventTemplate(`of {{plural .Flows "recorded packet"}}; only some of the answered packets are recorded`)
	notYet      = eventTemplate(`{{number .AddedNotYet}} not yet by the end, after {{seconds .AddedNotYetFor}} at most`)

	faultSubject    = eventTemplate(`{{.Series}} ({{recoveries .}} of {{.Times}}{{with .Recovered}}, the slowest after {{seconds .Max}}{{end}})`)
	faultFailed     = eventTemplate(`{{number .Failed}} of {{number .Flows}} with {{.Series}}`)
	faultMisrouted  = eventTemplate(`{{number .Misrouted}} with {{.Series}}`)
	faultsRecovered = eventTemplate(`{{join .With}} recovered from every fault at {{.Size}}.`)
	faultsRemained  = eventTemplate(`{{join .With}} did not recover from every fault at {{.Size}}.`)
	faultFlows      = eventTemplate(`Until the recoveries, {{if .Failed}}flows failed: {{join .Failed}}{{else}}none of {{plural .Flows "flow"}} failed ` +
		`(with each subject the share is below {{share .AtMost}} with 95 % confidence, if flows are independent){{end}}; ` +
		`{{if .Misrouted}}flows were misrouted: {{join .Misrouted}}{{else}}none of {{plural .Flows "flow"}} was misrouted{{end}}.`)

	invariantSubject   = eventTemplate(`{{.Series}} violated {{join .Violated}}, {{plural .Violations "time"}}`)
	invariantsViolated = eventTemplate(`Invariants: {{list .With}}.`)
	invariantsHeld     = eventTemplate(`No invariant was violated by {{join .With}} ({{plural .Checks "check"}}).`)
	// In the section:
	firstViolation = eventTemplate(`{{.Invariant}}, {{.Series}}: {{.First}}`)
	violationNote  = eventTemplate(`{{.Invariant}}, {{.Series}}: the first of {{plural .Violations "violation"}}`)
)

// eventFuncs write the values that only these sentences have.
var eventFuncs = template.FuncMap{
	"last":       func(p PacketCost) float64 { return p.Spot("last").Median },
	"slope":      slopeText,
	"interval":   func(fit estimate.Fit) string { return IntervalText(fit, slopeText) },
	"growth":     Flatness.Words,
	"signed":     signedTime,
	"share":      shareText,
	"step":       DisruptedStep.text,
	"recoveries": func(f FaultResult) int { return f.Times - f.Never },
}

func eventTemplate(text string) *template.Template {
	return template.Must(template.New("event").Funcs(doc.SentenceFuncs).Funcs(eventFuncs).Parse(text))
}

// packetWords are the values of a sentence about packets. Others: another sentence names the Service.
type packetWords struct {
	Services int
	Costs    []PacketCost
	Others   bool
}

// eventWords are the values of a sentence about flows, faults or invariants.
type eventWords struct {
	Size              string // "5,000 Services × 1 endpoints"
	With              []string
	Flows, Checks     int
	What              string   // happened to the flows
	AtMost            float64  // bound of a share
	Failed, Misrouted []string // by subject
}

// flowWords are the values for one subject under a stream.
type flowWords struct {
	Series   string
	Total    DisruptedStep
	Outcomes []string
}

// invariantWords are the values for one subject that violated invariants.
type invariantWords struct {
	Series     string
	Violated   []string
	Violations int
}

// packetAnswers states the cost of a packet to the last Service: first the subjects whose cost grows, then the others.
func (s *Summary) packetAnswers() []string {
	cells := s.PacketCells(NodeMethods...)
	if len(cells) == 0 || !s.ProbedDeeply() {
		return nil
	}
	costs := slices.DeleteFunc(s.PacketsOf(cells[0], NodeMethods...), func(p PacketCost) bool { return p.Spot("last") == nil })
	slices.SortStableFunc(costs, func(a, b PacketCost) int { return cmp.Compare(b.Spot("last").Median, a.Spot("last").Median) })
	var grow, others []PacketCost
	for _, p := range costs {
		if p.Flat != nil && p.Flat.Verdict == "grows" {
			grow = append(grow, p)
		} else {
			others = append(others, p)
		}
	}
	var out []string
	if len(grow) > 0 {
		out = append(out, doc.Sentence(packetsGrow, packetWords{Services: cells[0].Services, Costs: grow}))
	}
	if len(others) > 0 {
		out = append(out, doc.Sentence(packetsFlat, packetWords{Services: cells[0].Services, Costs: others, Others: len(grow) > 0}))
	}
	return out
}

// DisruptionAnswers states the outcomes of flows, by subject at the largest size.
func (s *Summary) DisruptionAnswers() []string {
	cells := s.DisruptedCells()
	if len(cells) == 0 || len(s.Faults) > 0 { // the fault answers cover flows
		return nil
	}
	var clean, others []string
	flows, least, unwatched := 0, math.MaxInt, 0
	for _, d := range s.DisruptionsOf(cells[0]) {
		total := d.During()
		unwatched += d.Unwatched
		if total.Flows == 0 {
			continue
		}
		words := flowWords{Series: d.Series, Total: total, Outcomes: total.badOutcomes()}
		if len(words.Outcomes) == 0 {
			clean = append(clean, doc.Sentence(flowSubject, words))
			flows, least = flows+total.Flows, min(least, total.Flows)
			continue
		}
		others = append(others, doc.Sentence(flowSubject, words))
	}
	size := records.SizesText(cells[:1])
	var out []string
	if len(clean) > 0 {
		out = append(out, doc.Sentence(flowsClean, eventWords{Size: size, Flows: flows, AtMost: estimate.ShareAtMost(0, least), With: clean}))
	}
	if len(others) > 0 {
		out = append(out, doc.Sentence(flowsFailed, eventWords{Size: size, With: others}))
	}
	if unwatched > 0 {
		out = append(out, doc.Sentence(unobserved, eventWords{Flows: unwatched}))
	}
	return out
}

// badOutcomes lists what happened to flows that were not served as they should be.
func (d DisruptedStep) badOutcomes() []string {
	var out []string
	for _, one := range []eventWords{{Flows: d.Failed, What: "failed"}, {Flows: d.Misrouted, What: "were misrouted"},
		{Flows: d.LongLivedTCPBroken, What: "packets of long-lived TCP connections were lost"},
		{Flows: d.LongLivedUDPRemoved, What: "packets of long-lived UDP flows still went to removed endpoints"}} {
		if one.Flows > 0 {
			out = append(out, doc.Sentence(flowOutcome, one))
		}
	}
	return out
}

// faultAnswers states which subjects recovered from all faults, which did not, and the outcomes of flows until then.
func (s *Summary) faultAnswers() []string {
	cells := s.FaultCells()
	if len(cells) == 0 {
		return nil
	}
	_, series := s.FaultsOf(cells[0])
	var all, others []string
	flows, least := eventWords{}, math.MaxInt
	for _, one := range series {
		total := s.faultTotals(cells[0], one)
		if total.Never > 0 {
			others = append(others, doc.Sentence(faultSubject, total))
		} else {
			all = append(all, doc.Sentence(faultSubject, total))
		}
		flows.Flows += total.Flows
		if total.Flows > 0 {
			least = min(least, total.Flows)
		}
		if total.Failed > 0 {
			flows.Failed = append(flows.Failed, doc.Sentence(faultFailed, total))
		}
		if total.Misrouted > 0 {
			flows.Misrouted = append(flows.Misrouted, doc.Sentence(faultMisrouted, total))
		}
	}
	size := records.SizesText(cells[:1])
	var out []string
	if len(all) > 0 {
		out = append(out, doc.Sentence(faultsRecovered, eventWords{Size: size, With: all}))
	}
	if len(others) > 0 {
		out = append(out, doc.Sentence(faultsRemained, eventWords{Size: size, With: others}))
	}
	if flows.Flows > 0 {
		flows.AtMost = estimate.ShareAtMost(0, least)
		out = append(out, doc.Sentence(faultFlows, flows))
	}
	return out
}

// invariantAnswers states which subjects violated invariants, and which did not.
func (s *Summary) invariantAnswers() []string {
	_, series := s.invariantNames()
	var clean, others []string
	looked := 0
	for _, one := range series {
		checked, violations, of := s.InvariantTotals(one)
		if violations == 0 {
			clean = append(clean, one)
			looked += checked
			continue
		}
		others = append(others, doc.Sentence(invariantSubject, invariantWords{Series: one, Violated: of, Violations: violations}))
	}
	var out []string
	if len(others) > 0 {
		out = append(out, doc.Sentence(invariantsViolated, eventWords{With: others}))
	}
	if len(clean) > 0 {
		out = append(out, doc.Sentence(invariantsHeld, eventWords{With: clean, Checks: looked}))
	}
	return out
}
