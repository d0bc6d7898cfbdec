package verdict

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"synclab/reports/doc"
)

// The bounds of the rules.
const (
	// saturatedFrom is the share of the time in syncs from which a proxier counts as saturated: with 5 % more work (1/0.95), it
	// would never pause.
	saturatedFrom = 0.95
	// busyFrom is the share from which the verdict warns: with 40 % more work (1/0.7), it would never pause.
	busyFrom = 0.7
	// unobservedFrom is the share of unobserved flows above which the others say nothing of all: as many may have failed.
	unobservedFrom = 0.05
	// stallFrom is the shortest stall or wait of others, in seconds, that is named: a node's probes have timeouts from 1 s on.
	stallFrom = 1
	// mostNamed bounds the subjects that one kind of line names.
	mostNamed = 4
)

// Facts are what the rules judge. Texts of values have their units.
type Facts struct {
	Incomplete []string // runs that did not end as planned, with the reason
	Stopped    []string // subjects that were stopped, as sentences without a full stop
	Loads      []Load
	Violated   []Violated
	Stalls     []Stalls
	Faults     []Faults
	Flows      []Flows
	Moves      []Move
	Answers    Answers
	SLOs       []SLOResult
	SLOSource  string // who set the SLOs
	Control    Control
	Best       Best
	Rankings   []Ranking
	Pairs      []Pair
	Growth     []Growth
}

// Load is a proxier during churn, at one size.
type Load struct {
	Series, Size string
	Busy         float64 // share of the time in which syncs ran
	Sync         float64 // median duration of a sync, in seconds
	Gap          float64 // mean time between two changes, in seconds; 0: unknown
	Fits         int     // the largest measured number of Services at which it is not saturated; 0: none
}

// Violated has the invariants that a subject violated.
type Violated struct {
	Series     string
	Invariants []string
	Times      int
}

// Stalls are the stalls that the kernel logged during the repetitions of a subject.
type Stalls struct {
	Series, Size    string
	Kinds, Tasks    []string
	Repetitions, Of int     // with stalls, and with a log that was read
	Longest         float64 // in seconds; 0: unknown
	// Gap is the longest time that another process could not run, Wait the longest call of another that writes rules.
	Gap, Wait Longest
}

// Longest is the longest of some times, in seconds; Step is the kind of step in which it was.
type Longest struct {
	Seconds    float64
	Size, Step string
}

// Faults counts the faults of a subject, and those from which it did not recover.
type Faults struct {
	Series           string
	Times, Recovered int
	Unrepaired       int      // faults from which it did not recover
	Never            []string // their names
	Slowest          float64  // recovery, in seconds; 0: none
}

// Flows are the new flows of a subject while the cluster changed, and packets of long-lived flows without their endpoint.
type Flows struct {
	Series                               string
	Flows, Failed, Misrouted, LongBroken int
	Unobserved, Stream                   int // flows of the stream that were not observed, and all of it
}

// HalfSeen reports whether so many flows were not observed that a lack of failures is no good sign.
func (f Flows) HalfSeen() bool { return float64(f.Unobserved) > unobservedFrom*float64(f.Stream) }

// Move is the advice on a move from one proxier to another.
type Move struct {
	From, To, Advice string
	Level            doc.Level
	Reasons          []string
}

// Answers counts packets that two subjects answer differently, packets that looped, packets that were not observed, and
// subjects without packets. Unseen says the last two in words.
type Answers struct {
	Packets, Unexplained, Looped, Busy, Missing int
	Reference, Unseen                           string
}

// SLOResult is the result of one SLO for a subject: the largest size that meets it, and the first that violates it; 0: none.
type SLOResult struct {
	Series, Name, Limit, Value string // Value: at ViolatedAt
	MetUpTo, ViolatedAt        int
	Unclear, Sweep             bool
}

// Control has the costs of packets that no rule concerns, of the subject with the least and of that with the largest, in
// seconds; 0: not measured.
type Control struct{ Least, Most float64 }

// Ranking has the subjects by one figure, the best first.
type Ranking struct {
	Figure string
	Places []string // "synclab/nftables 1.02 ms"
}

// Best has the figures in which one subject is better than all others.
type Best struct {
	Size    string
	Series  []string
	Figures [][]string // of each series
}

// Pair compares a subject with its baseline. Differences are such as "reaction 18× faster".
type Pair struct {
	Series, Baseline, Size string
	Differences            []string
	Same                   []string // figures without a shown difference
	Observed               bool     // too few repetitions for intervals
}

// Growth is where a duration starts to grow faster than the number of Services.
type Growth struct {
	Series, What string
	From         int     // Services
	Double       float64 // times as long, for twice the Services
}

// Of returns the lines of the verdict, the most important first.
func Of(f Facts) []doc.Line {
	var out []doc.Line
	for _, rule := range []func(Facts) []doc.Line{incomplete, moves, saturated, stopped, violated, stalled, faults, flows, answers, slos, best, control, rankings, pairs, busy, growth} {
		out = append(out, rule(f)...)
	}
	for i := range out {
		if len(f.Incomplete) > 0 && out[i].Level == doc.Good { // what is missing may have been worse
			out[i] = doc.Line{Level: doc.Info, Text: "As far as it was measured: " + doc.LowerFirst(out[i].Text)}
		}
	}
	if len(out) == 0 {
		out = append(out, doc.Line{Level: doc.Info, Text: "Nothing to judge: the run has no changes, SLOs, flows or faults. The tables have what was measured."})
	}
	return out
}

func incomplete(f Facts) (out []doc.Line) {
	for _, text := range f.Incomplete {
		out = append(out, doc.Line{Level: doc.Care, Text: "Incomplete: " + text + "."})
	}
	return out
}

func moves(f Facts) (out []doc.Line) {
	for _, m := range f.Moves {
		text := doc.UpperFirst(m.Advice) + ": from " + m.From + " to " + m.To
		if len(m.Reasons) > 0 {
			text += ". " + doc.UpperFirst(m.Reasons[0])
		}
		if more := len(m.Reasons) - 1; more > 0 {
			text += fmt.Sprintf("; and %s below", doc.Plural(more, "further reason"))
		}
		out = append(out, doc.Line{Level: m.Level, Text: text + "."})
	}
	return out
}

// Saturated reports whether syncs ran back to back.
func Saturated(l Load) bool { return l.Busy >= saturatedFrom }

func saturated(f Facts) (out []doc.Line) {
	for _, l := range f.Loads {
		if !Saturated(l) {
			continue
		}
		text := fmt.Sprintf("%s is saturated at %s: a sync takes %s", l.Series, l.Size, doc.Format(l.Sync, "s"))
		if l.Gap > 0 {
			text += fmt.Sprintf(", and changes come at %s a second", short(1/l.Gap))
		}
		text += fmt.Sprintf("; syncs ran %s of the time", percent(l.Busy))
		if l.Sync > 0 && l.Gap > 0 && l.Sync > l.Gap {
			text += fmt.Sprintf(". They would not run back to back below %s changes a second", short(1/l.Sync))
			if l.Fits > 0 {
				text += ", or at this rate with " + doc.Grouped(int64(l.Fits)) + " Services"
			}
		} else if l.Fits > 0 {
			text += ". They did not run back to back with " + doc.Grouped(int64(l.Fits)) + " Services"
		}
		out = append(out, doc.Line{Level: doc.Bad, Text: text + "."})
	}
	return bounded(out, mostNamed)
}

func busy(f Facts) (out []doc.Line) {
	for _, l := range f.Loads {
		if l.Busy >= busyFrom && l.Busy < saturatedFrom {
			out = append(out, doc.Line{Level: doc.Care, Text: fmt.Sprintf("%s is busy with syncs %s of the time at %s: there is little room for more changes.", l.Series, percent(l.Busy), l.Size)})
		}
	}
	return bounded(out, mostNamed)
}

func stopped(f Facts) (out []doc.Line) {
	for _, text := range f.Stopped {
		out = append(out, doc.Line{Level: doc.Bad, Text: text + "."})
	}
	return bounded(out, mostNamed)
}

func violated(f Facts) (out []doc.Line) {
	for _, v := range f.Violated {
		out = append(out, doc.Line{Level: doc.Bad, Text: fmt.Sprintf("With %s, %s failed: %s.", v.Series, doc.Plural(v.Times, "check"), doc.JoinWords(v.Invariants))})
	}
	return out
}

// stalled says during whose repetitions the kernel stalled. The log is the machine's, so it does not say because of whom.
func stalled(f Facts) (out []doc.Line) {
	for _, s := range f.Stalls {
		say := func(text string) { out = append(out, doc.Line{Level: doc.Care, Text: text + "."}) }
		if s.Repetitions > 0 {
			text := fmt.Sprintf("The kernel stalled during %d of %s of %s at %s: %s", s.Repetitions, doc.Plural(s.Of, "repetition"), s.Series, s.Size, doc.JoinWords(s.Kinds))
			if s.Longest > 0 {
				text += ", up to " + doc.Format(s.Longest, "s")
			}
			if len(s.Tasks) > 0 {
				text += ", in task " + doc.JoinWords(s.Tasks)
			}
			say(text)
		}
		for _, one := range []struct {
			Longest
			what string
		}{{s.Gap, "another process could not run on one CPU for"}, {s.Wait, "another program waited to write its own rules for"}} {
			if one.Seconds >= stallFrom {
				say(fmt.Sprintf("With %s at %s, %s %s (step %s)", s.Series, one.Size, one.what, doc.Format(one.Seconds, "s"), one.Step))
			}
		}
	}
	return out
}

func faults(f Facts) (out []doc.Line) {
	var clean []string
	for _, one := range f.Faults {
		switch {
		case len(one.Never) == 0 && one.Recovered >= one.Times:
			clean = append(clean, fmt.Sprintf("%s (%d of %d, the slowest after %s)", one.Series, one.Times, one.Times, doc.Format(one.Slowest, "s")))
			continue
		case len(one.Never) == 0:
			out = append(out, doc.Line{Level: doc.Care, Text: fmt.Sprintf("%s: a recovery was observed from %d of %s.", one.Series, one.Recovered, doc.Plural(one.Times, "fault"))})
			continue
		}
		out = append(out, doc.Line{Level: doc.Bad, Text: never(one)})
	}
	if len(clean) > 0 {
		out = append(out, doc.Line{Level: doc.Good, Text: "Recovered from every fault: " + doc.JoinWords(clean) + "."})
	}
	return out
}

// never names the faults from which a subject did not recover.
func never(one Faults) string {
	of := doc.Plural(one.Times, "fault")
	if one.Unrepaired == one.Times && one.Times > 1 {
		return fmt.Sprintf("%s did not recover from any of %s.", one.Series, of)
	}
	return fmt.Sprintf("%s did not recover from %d of %s: %s.", one.Series, one.Unrepaired, of, doc.JoinWords(some(one.Never)))
}

func flows(f Facts) (out []doc.Line) {
	var clean, around, unseen []string
	least, during := 0, ""
	if len(f.Faults) > 0 {
		during = " between a fault and the recovery"
	}
	for _, one := range f.Flows {
		if one.HalfSeen() {
			unseen = append(unseen, fmt.Sprintf("%s %s of %s", one.Series, doc.Grouped(int64(one.Unobserved)), doc.Grouped(int64(one.Stream))))
		}
		failed := one.Failed
		if len(f.Faults) > 0 && failed > 0 { // faults are meant to cost flows: they have a line of their own
			around = append(around, fmt.Sprintf("%s %s (%.2g %% of %s)", one.Series, doc.Grouped(int64(failed)), 100*float64(failed)/float64(one.Flows), doc.Grouped(int64(one.Flows))))
			failed = 0
		}
		if one.Failed+one.Misrouted+one.LongBroken == 0 {
			if one.HalfSeen() {
				continue
			}
			clean = append(clean, one.Series)
			if least == 0 || one.Flows < least {
				least = one.Flows
			}
			continue
		}
		var parts []string
		if failed > 0 {
			parts = append(parts, fmt.Sprintf("%s of %s new flows failed", doc.Grouped(int64(failed)), doc.Grouped(int64(one.Flows))))
		}
		if one.Misrouted > 0 {
			parts = append(parts, doc.Plural(one.Misrouted, "new flow")+" went to a wrong endpoint")
		}
		if one.LongBroken > 0 {
			parts = append(parts, doc.Plural(one.LongBroken, "packet")+" of long-lived flows did not reach their endpoint")
		}
		if len(parts) > 0 {
			out = append(out, doc.Line{Level: doc.Bad, Text: one.Series + ": " + doc.JoinWords(parts) + "."})
		}
	}
	out = bounded(out, mostNamed)
	if len(around) > 0 {
		out = append(out, doc.Line{Level: doc.Care, Text: "New flows that failed between a fault and the recovery: " + strings.Join(around, ", ") + "."})
	}
	if len(unseen) > 0 {
		out = append(out, doc.Line{Level: doc.Care, Text: "Flows that were not observed, since flows past the rules failed too, or the observer had no CPU: " + strings.Join(unseen, ", ") +
			". They may have failed because of the proxy."})
	}
	if len(clean) > 0 {
		out = append(out, doc.Line{Level: doc.Good, Text: fmt.Sprintf("No new flow failed or went to a wrong endpoint%s with %s (%s or more with each).", during, doc.JoinWords(clean), doc.Plural(least, "flow"))})
	}
	return out
}

func answers(f Facts) (out []doc.Line) {
	a := f.Answers
	if a.Looped > 0 {
		out = []doc.Line{{Level: doc.Bad, Text: fmt.Sprintf("%s to ports that no Service has looped: the node took them more than once, or sent them back.", doc.Plural(a.Looped, "packet"))}}
	}
	unseen := ""
	if a.Unseen != "" {
		unseen = " " + doc.UpperFirst(a.Unseen) + "."
	}
	switch {
	case a.Packets == 0 && a.Unexplained == 0, a.Unexplained == 0 && a.Looped > 0:
		if unseen != "" {
			out = append(out, doc.Line{Level: doc.Care, Text: "Packets that were not compared:" + unseen})
		}
		return out
	case a.Unexplained == 0:
		level, same := doc.Good, "All subjects answer packets as "+a.Reference+" does"
		if a.Missing > 0 || float64(a.Busy) > unobservedFrom*float64(a.Packets+a.Busy) {
			level, same = doc.Care, "Packets that were observed end as with "+a.Reference
		}
		return []doc.Line{{Level: level, Text: fmt.Sprintf("%s, but for documented differences (%s compared).%s", same, doc.Plural(a.Packets, "packet"), unseen)}}
	}
	return append(out, doc.Line{Level: doc.Bad, Text: fmt.Sprintf("%s of %s ended otherwise than with %s, and no documented difference explains it.%s",
		doc.Grouped(int64(a.Unexplained)), doc.Plural(a.Packets, "packet"), a.Reference, unseen)})
}

func slos(f Facts) (out []doc.Line) {
	var names, order []string // of the SLOs; of the subjects
	for _, s := range f.SLOs {
		if text := s.limit(); !slices.Contains(names, text) {
			names = append(names, text)
		}
		if !slices.Contains(order, s.Series) {
			order = append(order, s.Series)
		}
	}
	var met, limited, over []string
	unclear := map[string][]string{} // subjects by SLO
	for _, series := range order {
		metUpTo, violatedAt, sweep := -1, 0, false
		var broken, measured, open []string
		for _, s := range f.SLOs {
			if s.Series != series {
				continue
			}
			measured = append(measured, s.Name)
			if metUpTo < 0 || s.MetUpTo < metUpTo {
				metUpTo = s.MetUpTo
			}
			sweep = sweep || s.Sweep
			if s.Unclear {
				open = append(open, s.limit())
			}
			switch {
			case s.ViolatedAt == 0:
			case violatedAt == 0 || s.ViolatedAt < violatedAt:
				violatedAt, broken = s.ViolatedAt, []string{s.words()}
			case s.ViolatedAt == violatedAt:
				broken = append(broken, s.words())
			}
		}
		own := "" // which of the SLOs, unless all
		if len(measured) < len(names) {
			own = " (" + doc.JoinWords(measured) + ")"
		}
		switch {
		case violatedAt > 0 && sweep && metUpTo > 0:
			limited = append(limited, fmt.Sprintf("%s up to %s Services, at %s it violates %s", series, doc.Grouped(int64(metUpTo)), doc.Grouped(int64(violatedAt)), doc.JoinWords(broken)))
		case violatedAt > 0 && sweep:
			limited = append(limited, fmt.Sprintf("%s at no measured size, at %s Services it violates %s", series, doc.Grouped(int64(violatedAt)), doc.JoinWords(broken)))
		case violatedAt > 0:
			over = append(over, series+" violates "+doc.JoinWords(broken))
		case len(open) > 0:
			for _, name := range open {
				unclear[name] = append(unclear[name], series)
			}
		case sweep:
			met = append(met, series+" up to "+doc.Grouped(int64(metUpTo))+" Services"+own)
		default:
			met = append(met, series+own)
		}
	}
	for _, text := range over {
		out = append(out, doc.Line{Level: doc.Bad, Text: text + "."})
	}
	out = bounded(out, mostNamed)
	if len(limited) > 0 {
		out = append(out, doc.Line{Level: doc.Bad, Text: "SLOs are met only up to a size: " + strings.Join(limited, "; ") + "."})
	}
	for _, name := range names {
		if who := unclear[name]; len(who) > 0 {
			out = append(out, doc.Line{Level: doc.Care, Text: fmt.Sprintf("Not clear: %s with %s. The interval contains the limit.", name, doc.JoinWords(who))})
		}
	}
	if len(met) > 0 {
		out = append(out, doc.Line{Level: doc.Good, Text: "SLOs (" + strings.Join(names, ", ") + ") are met by " + doc.JoinWords(met) + "."})
	}
	if len(out) > 0 && f.SLOSource != "" {
		out[len(out)-1].Text += " The SLOs are " + f.SLOSource + "."
	}
	return out
}

func (s SLOResult) limit() string { return s.Name + " ≤ " + s.Limit }
func (s SLOResult) words() string { return fmt.Sprintf("%s (%s)", s.limit(), s.Value) }

// controlsDiffer is the ratio of controls from which round trips of subjects cannot be compared.
const controlsDiffer = 1.15

// Differs reports whether the control differs between subjects, so that the machine has a part in their round trips.
func Differs(c Control) bool { return c.Least > 0 && c.Most > controlsDiffer*c.Least }

func control(f Facts) []doc.Line {
	if !Differs(f.Control) {
		return nil
	}
	return []doc.Line{{Level: doc.Care, Text: fmt.Sprintf("The control differs between the subjects: a packet of an established flow, which no rule concerns, takes %s to %s. "+
		"So does the machine's part of every round trip: do not compare handshakes and echoes between subjects of this run, only along the positions of one.",
		doc.Format(f.Control.Least, "s"), doc.Format(f.Control.Most, "s"))}}
}

func best(f Facts) []doc.Line {
	if len(f.Best.Series) == 0 {
		return nil
	}
	var parts []string
	for i, series := range f.Best.Series {
		parts = append(parts, series+" in "+doc.JoinWords(f.Best.Figures[i]))
	}
	return []doc.Line{{Level: doc.Info, Text: "Best at " + f.Best.Size + ": " + strings.Join(parts, "; ") + "."}}
}

func rankings(f Facts) (out []doc.Line) {
	for _, r := range f.Rankings {
		places := r.Places
		if len(places) < 2 {
			continue
		}
		if len(places) > 2*mostNamed {
			places = append(slices.Clone(places[:mostNamed]), "…", places[len(places)-1])
		}
		out = append(out, doc.Line{Level: doc.Info, Text: r.Figure + ": " + strings.Join(places, ", ") + "."})
	}
	return out
}

func pairs(f Facts) (out []doc.Line) {
	for i, p := range f.Pairs {
		text := p.Series + " against " + p.Baseline + ": "
		if i == 0 {
			text = "At " + p.Size + ", " + text
		}
		var parts []string
		if len(p.Differences) > 0 {
			parts = append(parts, strings.Join(p.Differences, ", "))
		}
		if p.Observed && len(parts) > 0 {
			parts[0] += " (observed in too few repetitions for intervals)"
		}
		if len(p.Same) > 0 {
			parts = append(parts, "no difference shown in "+doc.JoinWords(p.Same))
		}
		text += strings.Join(parts, "; ")
		out = append(out, doc.Line{Level: doc.Info, Text: text + "."})
	}
	return bounded(out, 2*mostNamed)
}

func growth(f Facts) (out []doc.Line) {
	var order []string
	of := map[string][]string{}
	for _, g := range f.Growth {
		if of[g.What] == nil {
			order = append(order, g.What)
		}
		of[g.What] = append(of[g.What], fmt.Sprintf("%s from %s on (twice the Services: %s times as long)", g.Series, doc.Grouped(int64(g.From)), short(g.Double)))
	}
	for _, what := range order {
		out = append(out, doc.Line{Level: doc.Care, Text: fmt.Sprintf("%s grows faster than the number of Services: %s.", doc.UpperFirst(what), strings.Join(some(of[what]), "; "))})
	}
	return out
}

// bounded keeps the first lines of one kind, and says how many there are more.
func bounded(lines []doc.Line, most int) []doc.Line {
	if more := len(lines) - most; more > 0 {
		lines[most-1].Text += fmt.Sprintf(" And %d more: see below.", more)
		return lines[:most]
	}
	return lines
}

// some names the first of many.
func some(names []string) []string {
	if len(names) <= mostNamed {
		return names
	}
	return append(slices.Clone(names[:mostNamed]), fmt.Sprintf("%d more", len(names)-mostNamed))
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 0, 64) + " %" }

// short has two significant digits.
func short(v float64) string {
	if v >= 9.95 {
		return doc.Grouped(int64(v + 0.5))
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}
