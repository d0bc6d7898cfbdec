package sections

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/reports/doc"
	"synclab/reports/records"
)

// verdictKey is one kind of packets to one Service port. kind is as in Record.Kind, a fact of the cluster.
type verdictKey struct{ service, family, protocol, target, source, kind string }

// knownVerdicts names the behaviour (docs/differences.md) that explains a difference, by kind of destination.
var knownVerdicts = map[string]string{
	"node-port-localhost": "nodeport-localhost", "other-port": "cluster-ip-other-ports",
}

// explainedBy names the behaviour in which two subjects differ and that explains a difference; "nothing" if none does.
func explainedBy(d verdictDifference, reference, other string) string {
	if known := knownVerdicts[d.target]; known != "" {
		return known
	}
	if b, known := subject.BehaviourOf(d.kind); known && b.Differs(subject.Named(reference), subject.Named(other)) {
		return b.ID
	}
	return "nothing"
}

// loops is the outcome of packets that passed the node more than once. wrongEndpoint: another Service's endpoint
// answered.
const loops, wrongEndpoint, uneven = "looped", "wrong endpoint", "unequal shares"

// shareAlarm is the probability that any Service of a subject seems to have unequal shares by chance.
const shareAlarm = 0.001

// unevenShares counts the Services whose endpoints got unequal shares of their connections: by chi-square, corrected for the
// number of tests (Bonferroni).
func unevenShares(c *records.Samples) (n, tested int) {
	type one struct {
		service, family string
		records.Repetition
	}
	counts := map[one][]float64{}
	for _, r := range c.Records {
		if r.Metric == raw.EndpointShare {
			of := one{r.Service, r.Family, records.Repetition{Run: r.Run, Rep: r.Rep}}
			counts[of] = append(counts[of], r.Value)
		}
	}
	for _, got := range counts {
		equal := slices.Repeat([]float64{stat.Mean(got, nil)}, len(got))
		if (distuv.ChiSquared{K: float64(len(got) - 1)}).Survival(stat.ChiSquare(got, equal)) < shareAlarm/float64(len(counts)) {
			n++
		}
	}
	return n, len(counts)
}

// verdictsOf returns how the packets of a series ended, and counts those that ended wrong with any subject: answers by
// endpoints of other Services, and loops. It counts busy ones, which were not observed, apart.
func verdictsOf(c *records.Samples) (ends map[verdictKey]string, wrong map[string]int, busy int) {
	ends, wrong = map[verdictKey]string{}, map[string]int{}
	for _, r := range c.Records {
		if r.Metric != raw.PacketVerdict {
			continue
		}
		switch {
		case r.Outcome == raw.TooBusy:
			busy++
			continue
		case strings.Contains(r.Outcome, loops): // whatever the reference does
			wrong[loops]++
			continue
		case r.Error != "":
			wrong[wrongEndpoint]++
		}
		ends[verdictKey{r.Service, r.Family, r.Protocol, r.Target, r.Method, r.Kind}] = r.Outcome
	}
	return ends, wrong, busy
}

// PacketAnswers counts the packets that a subject and the reference both sent, those whose end nothing explains, those
// that looped, and those not observed, since packets past the rules failed too. The first subject with packets is the
// reference.
type PacketAnswers struct {
	Packets, Unexplained, Looped, Busy int
	Shared                             int // Services whose endpoints' shares were tested; unequal ones are Unexplained
	Reference                          string
	// Missing are the subjects without packets where others have some, such as those that were stopped.
	Missing []string
}

// Unseen says what was not compared; empty: nothing.
func (a PacketAnswers) Unseen() string {
	var parts []string
	if a.Busy > 0 {
		parts = append(parts, doc.Plural(a.Busy, "packet")+" not observed")
	}
	if len(a.Missing) > 0 {
		parts = append(parts, "no packets of "+doc.JoinWords(a.Missing)+" to compare")
	}
	return strings.Join(parts, "; ")
}

// PacketAnswers compares how packets ended.
func (s *Summary) PacketAnswers() PacketAnswers {
	_, out := s.answersTable()
	return out
}

// answersSection compares how packets to every address of every Service ended, with the first subject as reference.
func (s *Summary) answersSection() doc.Section {
	out := doc.Section{ID: "answers", Title: "Who answers packets otherwise", Short: "Answers"}
	t, all := s.answersTable()
	if all.Packets+all.Unexplained+all.Looped+all.Busy == 0 && len(all.Missing) == 0 {
		return out
	}
	note := fmt.Sprintf("%s real packets, by address and source, compared with %s: ", doc.Grouped(int64(all.Packets)), all.Reference)
	switch {
	case all.Packets+all.Unexplained+all.Looped == 0:
		note = "No packet was compared."
	case len(t.Rows) == 0:
		note += "no difference."
	default:
		note += fmt.Sprintf("%d differences that nothing explains.", all.Unexplained)
	}
	if all.Shared > 0 {
		note += fmt.Sprintf(" Shares of endpoints were tested for %d Services, with 1,000 connections each (chi-square): equal ones fail with one of 1,000 subjects.", all.Shared)
	}
	if unseen := all.Unseen(); unseen != "" {
		note += " Not compared: " + unseen + "."
	}
	out.Add(doc.Block{Note: note}, doc.Block{Table: t})
	return out
}

// answersTable has a row for each kind of address at which packets ended otherwise than with the first subject.
func (s *Summary) answersTable() (t *doc.Table, all PacketAnswers) {
	t = &doc.Table{Columns: []doc.Column{{Name: "Subject"}, {Name: "Settings", Differs: true, Row: true}, {Name: "To", Row: true}, {Name: "From", Row: true},
		{Name: "Addresses", Short: "count", Numeric: true}, {Name: "Reference"}, {Name: "Subject's"}, {Name: "Explained by"}, {Name: "Such as", On: doc.Page | doc.Markdown}}}
	for _, cell := range s.Collected.Cells {
		var first map[verdictKey]string
		var missing []string
		for _, one := range s.Collected.Series {
			var ends map[verdictKey]string
			var wrong map[string]int
			if samples := one.Cells[cell.ID()]; samples != nil {
				busy := 0
				ends, wrong, busy = verdictsOf(samples)
				all.Busy += busy
				bad, tested := unevenShares(samples)
				if all.Shared += tested; bad > 0 {
					wrong[uneven] = bad
				}
			}
			all.Unexplained += wrong[wrongEndpoint] + wrong[uneven]
			all.Looped += wrong[loops]
			for _, what := range slices.Sorted(maps.Keys(wrong)) {
				t.Add(s.SeriesCell(one.Name), settingsCell(cell), doc.Text("all"), doc.Text("all"), doc.Int(wrong[what]), doc.None(), doc.Text(what), doc.Text("nothing"), doc.None())
			}
			if len(ends) == 0 {
				missing = append(missing, one.Name)
				continue
			}
			if first == nil {
				first, all.Reference = ends, one.Name
				continue
			}
			for key := range ends {
				if _, both := first[key]; both {
					all.Packets++
				}
			}
			for _, d := range differences(first, ends) {
				explained := explainedBy(d, all.Reference, one.Name)
				if explained == "nothing" {
					all.Unexplained += d.n
				}
				t.Add(s.SeriesCell(one.Name), settingsCell(cell), doc.Text(d.target), doc.Text(d.source), doc.Int(d.n), doc.Text(d.before), doc.Text(d.after), doc.Text(explained), doc.Text(d.example))
			}
		}
		if first != nil {
			all.Missing = append(all.Missing, missing...)
		}
	}
	all.Missing = records.Distinct(all.Missing)
	return t, all
}

// verdictDifference is a group of addresses at which packets ended otherwise.
type verdictDifference struct {
	target, source, kind, before, after, example string
	n                                            int
}

func differences(before, after map[verdictKey]string) []verdictDifference {
	type group struct{ target, source, kind, before, after string }
	counts, examples := map[group]int{}, map[group]string{}
	for key, end := range after {
		if was, there := before[key]; there && was != end {
			g := group{key.target, key.source, key.kind, was, end}
			counts[g]++
			if example := key.service + " " + key.protocol + " " + key.family; examples[g] == "" || example < examples[g] {
				examples[g] = example
			}
		}
	}
	var all []verdictDifference
	for g, n := range counts {
		all = append(all, verdictDifference{g.target, g.source, g.kind, g.before, g.after, examples[g], n})
	}
	slices.SortFunc(all, func(a, b verdictDifference) int {
		return cmp.Or(cmp.Compare(a.target, b.target), cmp.Compare(a.source, b.source), cmp.Compare(a.kind, b.kind), cmp.Compare(a.before, b.before), cmp.Compare(a.after, b.after))
	})
	return all
}
