package sections

import (
	"cmp"
	"fmt"
	"slices"

	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/reports/comparison"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// Move is one step migrate of a series, all repetitions together, with the settle after it.
type Move struct {
	From string `json:"from"`
	To   string `json:"to"`
	Step string `json:"step"`
	// Took is the time until every Service is in the tables of the next proxier, in seconds.
	Took  *estimate.Distribution `json:"took,omitempty"`
	Flows DisruptedStep          `json:"flows"`
	// LostFor is the time from the first to the last flow that failed, the longest of a repetition, in seconds.
	LostFor float64 `json:"lost_for"`
	// LostLater counts flows that failed in later steps, up to the next move: Services did not come back.
	LostLater int `json:"lost_later"`
	// Left is the largest number of things left by the earlier proxier, by kind. Differs is the number of Services by
	// behaviour (subject.Behaviours).
	Left    map[string]int `json:"left,omitempty"`
	Differs map[string]int `json:"differs,omitempty"`
}

// moves returns the moves of a series in a cell, in order.
func moves(c *records.Samples, name string) []Move {
	owners := StepOwners(c)
	var out []Move
	from := name
	for _, step := range DisruptedSteps(c) {
		n, kind := comparison.StepOf(step.Step)
		if kind != "migrate" {
			if len(out) > 0 && !step.Rest {
				out[len(out)-1].LostLater += step.Failed + step.Misrouted
			}
			continue
		}
		m := Move{From: from, Step: step.Step, Flows: step, Left: map[string]int{}, Differs: map[string]int{}}
		took := estimate.Sample{}
		first, last := map[records.Repetition]float64{}, map[records.Repetition]float64{}
		for _, r := range c.Records {
			if at, _ := comparison.StepOf(owners[r.Step]); at != n {
				continue
			}
			of := records.Repetition{Run: r.Run, Rep: r.Rep}
			switch {
			case r.Metric == raw.Move:
				m.To = r.Kind
				took[of] = append(took[of], r.Value)
			case r.Metric == raw.LeftBehind:
				m.Left[r.Table] = max(m.Left[r.Table], int(r.Value))
			case r.Metric == raw.BehaviourDiffers:
				m.Differs[r.Table] = max(m.Differs[r.Table], int(r.Value))
			case r.Metric == raw.Flow && r.Outcome != "":
				if _, there := first[of]; !there {
					first[of] = r.At
				}
				first[of], last[of] = min(first[of], r.At), max(last[of], r.At)
				m.LostFor = max(m.LostFor, last[of]-first[of])
			}
		}
		if m.Took = described(took); m.To != "" {
			from = m.To
		}
		out = append(out, m)
	}
	return out
}

// The verdicts on a move.
const (
	Go         = "go"
	GoWithCare = "go with care"
	NoGo       = "don't"
)

// Verdict says whether to make a move, and why. It is "don't" if Services were not reachable afterwards or packets went
// to wrong endpoints; "go with care" if flows were lost during the move, if something was left behind, or if the next
// proxier treats some of these Services differently; else "go".
func (m *Move) Verdict() (verdict string, reasons []string) {
	verdict = Go
	say := func(worse, format string, args ...any) {
		if verdict != NoGo {
			verdict = worse
		}
		reasons = append(reasons, fmt.Sprintf(format, args...))
	}
	if m.Took == nil {
		say(NoGo, "%s did not take over: its tables never had every Service", cmp.Or(m.To, "the next proxier"))
	}
	if m.LostLater > 0 {
		say(NoGo, "%s failed after the move", doc.Plural(m.LostLater, "flow"))
	}
	if m.Flows.Misrouted > 0 {
		say(NoGo, "%s reached a wrong endpoint", doc.Plural(m.Flows.Misrouted, "flow"))
	}
	if m.Flows.Failed > 0 {
		say(GoWithCare, "%d of %s new flows failed, within %s", m.Flows.Failed, doc.Grouped(int64(m.Flows.Flows)), doc.Format(m.LostFor, "s"))
	}
	if m.Flows.LongLivedTCPBroken > 0 {
		say(GoWithCare, "%d of %d long-lived TCP connections broke", m.Flows.LongLivedTCPBroken, m.Flows.LongLivedTCP)
	}
	for _, kind := range sortedKeys(m.Left) {
		if m.Left[kind] > 0 {
			say(GoWithCare, "%s left %d %s", m.From, m.Left[kind], kind)
		}
	}
	from, fromErr := subject.Parse(m.From)
	to, toErr := subject.Parse(m.To)
	for _, id := range sortedKeys(m.Differs) {
		if b, known := subject.BehaviourOf(id); known && fromErr == nil && toErr == nil {
			say(GoWithCare, "%s, %s: now %s; afterwards %s", id, doc.Plural(m.Differs[id], "Service"), b.In[from.Backend], b.In[to.Backend])
		}
	}
	return verdict, reasons
}

func sortedKeys(m map[string]int) []string {
	var keys []string
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// moveSection says what happened when one proxier replaced another.
func (s *Summary) moveSection() doc.Section {
	out := doc.Section{ID: "moves", Title: "Moving from one proxier to another", Short: "Moves"}
	t := &doc.Table{Columns: []doc.Column{{Name: "From"}, {Name: "To", Row: true}, {Name: "Services", Numeric: true}, {Name: "Settings", Differs: true},
		{Name: "Moved in", Numeric: true, Title: "from the begin of the first one's end until the second one's tables have every Service; median"},
		{Name: "Flows", Numeric: true}, {Name: "Failed", Numeric: true}, {Name: "Failed for", Numeric: true, Title: "from the first to the last new flow that failed; the longest"},
		{Name: "Misrouted", Numeric: true}, {Name: "TCP broken", Numeric: true, Title: "long-lived connections"}, {Name: "Left", Numeric: true, Title: "chains, rules, tables, servers and addresses of the first one, after the second one has converged"}}}
	var verdicts []doc.Block
	for _, cell := range s.Collected.Cells {
		for _, one := range s.Collected.Series {
			samples := one.Cells[cell.ID()]
			if samples == nil {
				continue
			}
			for _, m := range moves(samples, one.Subject) {
				left := 0
				for _, n := range m.Left {
					left += n
				}
				t.Add(doc.Text(m.From), doc.Text(cmp.Or(m.To, "–")), doc.Int(cell.Services), settingsCell(cell), distributionCell(m.Took, medianValue, true),
					doc.Int(m.Flows.Flows), doc.Int(m.Flows.Failed), doc.Value(m.LostFor, "s"), doc.Int(m.Flows.Misrouted), doc.Int(m.Flows.LongLivedTCPBroken),
					doc.Int(left))
				verdict, reasons := m.Verdict()
				verdicts = append(verdicts, doc.Block{Heading: fmt.Sprintf("%s → %s: %s", m.From, cmp.Or(m.To, "?"), verdict), List: reasons})
			}
		}
	}
	if len(t.Rows) > 0 {
		out.Add(doc.Block{Table: t})
		out.Add(verdicts...)
	}
	return out
}
