package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"synclab/bench/lab/process"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/reports/doc"
	"synclab/reports/profiles"
)

func count(n int) string { return doc.Grouped(int64(n)) }

// Limit is where a subject's limit is: "met at 7,100 (measured), violated at 7,900 (measured): start 38 s".
func (s *SubjectAnswer) Limit(q *Question) string {
	b := s.Bracket
	reps := func(n int) string {
		if n >= agreeing {
			return string(Measured)
		}
		return string(Observed)
	}
	met := fmt.Sprintf("met at %s (%s)", count(b.Met), reps(b.MetReps))
	violated := fmt.Sprintf("violated at %s (%s): %s", count(b.Violated), reps(b.ViolatedReps), s.firstText())
	text := ""
	switch {
	case s.Error != "":
		return "not measured: " + s.Error
	case len(s.Cells) == 0:
		return "not measured: the budget ended before its first cell"
	case b.Violated == 0 && b.Met > 0:
		text = fmt.Sprintf("at least %s (%s); beyond, unknown", count(b.Met), reps(b.MetReps))
	case b.Met == 0 && b.Violated > 0:
		text = violated + "; at no measured size met"
	case b.Met == 0:
		text = "unclear"
	default:
		text = met + ", " + violated
	}
	if len(b.Unclear) > 0 {
		var sizes []string
		for _, n := range b.Unclear {
			sizes = append(sizes, count(n))
		}
		text += "; repetitions contradict each other at " + doc.JoinWords(sizes)
	}
	return text
}

// firstText names the SLOs that are violated at the end of the bracket, with their values.
func (s *SubjectAnswer) firstText() string {
	var words []string
	for _, one := range slos {
		if v, ok := s.Value(one.name, s.Bracket.Violated); ok && slices.Contains(s.First, one.name) {
			text := one.text + " " + v.text(one)
			if s.constant(one.name) {
				text += " (it hardly grows with the number of Services)"
			}
			if i := slices.IndexFunc(s.Cells, func(c Cell) bool {
				_, ok := c.Values[one.name]
				return ok && c.Setting == "" && c.Size > s.Bracket.Violated && !slices.Contains(c.Violated, one.name)
			}); i >= 0 {
				text += " (but met at " + count(s.Cells[i].Size) + ": repeat it with a larger --budget)"
			}
			words = append(words, text)
		}
	}
	return doc.JoinWords(words)
}

// constant reports whether an SLO's quantity hardly grows between the smallest and the largest size, of which one is at
// least twice the other, and all sizes have it.
func (s *SubjectAnswer) constant(name string) bool {
	sizes := s.Sizes()
	if slices.ContainsFunc(sizes, func(size int) bool {
		v, ok := s.Value(name, size)
		return !ok || v.AtLeast || v.V <= 0
	}) {
		return false
	}
	last := len(sizes) - 1
	const noise = 0.1 // of the exponent
	return last > 0 && sizes[last] >= 2*sizes[0] && s.exponent(name, sizes[0], sizes[last]) < noise
}

// State is what a subject does at the asked size.
type State int

// States.
const (
	Unknown State = iota
	Meets
	Violates
)

// Asked says whether a subject meets the SLOs at the asked size.
func (a *Answer) Asked(s *SubjectAnswer) State {
	size := a.Question.Asked.Services
	switch {
	case s.Bracket.Met >= size:
		return Meets
	case s.Bracket.Violated > 0 && s.Bracket.Violated <= size:
		return Violates
	}
	return Unknown
}

// InUse is the answer for the subject in use.
func (a *Answer) InUse() *SubjectAnswer { return &a.Subjects[0] }

// Verdict is the answer in a few lines.
func (a *Answer) Verdict() []doc.Line {
	q, use := &a.Question, a.InUse()
	at := fmt.Sprintf("%s Services", count(q.Asked.Services))
	first := doc.Line{Level: doc.Care, Text: fmt.Sprintf("Unknown: %s has no measured answer at %s.", use.Name, at)}
	yes, no := "Yes: at "+at, "No: at "+at
	if !q.grows() {
		to := "To"
		if use.Bracket.Violated == 0 {
			to = "To at least"
		}
		yes, no = fmt.Sprintf("%s %s Services: there", to, count(use.Bracket.Met)), "Not at all: already at "+at
	}
	switch a.Asked(use) {
	case Meets:
		first = doc.Line{Level: doc.Good, Text: fmt.Sprintf("%s, %s meets every SLO, with the settings in use.", yes, use.Name)}
	case Violates:
		first = doc.Line{Level: doc.Bad, Text: fmt.Sprintf("%s, %s violates an SLO, with the settings in use.", no, use.Name)}
	}
	out := []doc.Line{first}
	if q.Assumed {
		out = append(out, doc.Line{Level: doc.Info, Text: fmt.Sprintf("%s was assumed to be in use today: --today names another subject.", use.Name)})
	}
	for i := range a.Subjects {
		s := &a.Subjects[i]
		line := doc.Line{Level: doc.Info, Text: s.Name + ": " + s.Limit(q) + "."}
		if s.Extrapolated > 0 {
			bound := ""
			if s.Extrapolated >= 2*s.Bracket.Met {
				bound = "at least " // twice the largest size is as far as it goes
			}
			line.Text += fmt.Sprintf(" Extrapolated, not measured: %s%s.", bound, count(s.Extrapolated))
		}
		out = append(out, line)
	}
	if s := use.Recommended; s != nil {
		text := fmt.Sprintf("Set minSyncPeriod of %s to %v", use.Name, s.Setting)
		if s.inUse(q) {
			text = fmt.Sprintf("Keep minSyncPeriod of %s at %v", use.Name, s.MinSyncPeriod)
		}
		out = append(out, doc.Line{Level: doc.Info, Text: text + ": " + use.confirmedText() + "."})
	}
	for _, g := range a.Growth {
		if g.Subject == use.Name && g.Kind != process.Partial {
			out = append(out, doc.Line{Level: doc.Info, Text: fmt.Sprintf("Why, %s, %s to %s Services: %s", profiles.KindText(g.Kind), count(g.From), count(g.To), g.Most())})
		}
	}
	if use.MemoryLimit > 0 {
		out = append(out, doc.Line{Level: doc.Info, Text: fmt.Sprintf("Give its pod a memory limit of %s: the peak at %s Services, plus a quarter.", doc.Format(float64(use.MemoryLimit), "B"), count(use.Bracket.Met))})
	}
	return out
}

// confirmedText says how well the recommended setting is known.
func (s *SubjectAnswer) confirmedText() string {
	c := s.Confirmed
	latency, cpu := slos[4], slos[3]
	switch {
	case c == nil:
		return fmt.Sprintf("latency p99 %s and %s in the simulated hour at %s Services; not confirmed by a run", amount(latency, s.Recommended.P99), amount(cpu, s.Recommended.CPU), count(s.Bracket.Met))
	case !c.Run:
		return fmt.Sprintf("the run with it at %s Services %s, and of the settings that meet the SLOs none is cheaper in the simulated hour", count(s.Bracket.Met), c.Outcome)
	}
	return fmt.Sprintf("a run with it at %s Services %s; latency p99 %s (simulated %s), CPU %s (simulated %s)", count(s.Bracket.Met), c.Outcome,
		amount(latency, c.MeasuredP99), amount(latency, c.PlayedP99), doc.Significant(c.MeasuredCPU), doc.Significant(c.PlayedCPU))
}

// snippet is the part of a KubeProxyConfiguration that is recommended; empty for programs that do not read one.
func (s *SubjectAnswer) snippet() string {
	about := subject.Named(s.Name)
	if !about.KnownBackend() || s.Recommended == nil {
		return ""
	}
	text := fmt.Sprintf("# A part of the configuration: the fields to change.\napiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: %s\n%s:\n  minSyncPeriod: %s\n", about.Backend, about.Backend, s.Recommended.MinSyncPeriod)
	if about.Own {
		text += fmt.Sprintf("# synclab proxy --policy %s\n", cmp.Or(s.Recommended.Policy, about.Policy))
	}
	if s.MemoryLimit > 0 {
		text += fmt.Sprintf("# resources.limits.memory of its pod: %dMi\n", s.MemoryLimit>>20)
	}
	return text
}

// controlPlane says what the changes cost the API server: each is sent to the proxy of each node.
func (q *Question) controlPlane() string {
	rate := q.Asked.Churn.Endpoints
	if q.SliceBytes == 0 || rate == 0 {
		return ""
	}
	each := q.SliceBytes * float64(q.Asked.Nodes)
	return fmt.Sprintf("One change of an EndpointSlice is %s of %s, so %s changes a second are %s a second that the API servers send.",
		doc.Plural(q.Asked.Nodes, "watch event"), doc.Format(q.SliceBytes, "B"), doc.Significant(rate), doc.Format(each*rate, "B"))
}

// The sizes that SIG Scalability tests Kubernetes with. Beyond them, the Service proxy is not the only possible limit.
// https://github.com/kubernetes/community/blob/main/sig-scalability/configs-and-limits/thresholds.md
const (
	testedServices  = 10_000
	testedEndpoints = 250 // per Service
	testedNodes     = 5_000
	testedPods      = 150_000
)

// remarks are caveats.
func (a *Answer) remarks(run *raw.Run) (out []string) {
	q := &a.Question
	if q.Defaulted {
		var each []string
		for _, s := range slos {
			if bound := s.bound(q.SLOs); bound > 0 {
				each = append(each, s.text+" ≤ "+amount(s, bound))
			}
		}
		out = append(out, "No SLOs were given; these defaults apply: "+strings.Join(each, ", ")+".")
	}
	said := map[string]bool{}
	for _, text := range run.LeftOut { // of a subject that failed at several sizes, the first
		if of, _, _ := strings.Cut(text, ": "); !said[of] {
			said[of] = true
			out = append(out, text+".")
		}
	}
	if a.Status == raw.StatusInterrupted {
		out = append(out, "The plan was interrupted. The same command goes on from its cells.")
	}
	for _, s := range a.Subjects {
		if s.Recommended != nil && s.Recommended.Beyond > 1 {
			out = append(out, fmt.Sprintf("%s: the simulated hour has syncs of %.1f times as many changes as were measured; their time was taken to grow in proportion.", s.Name, s.Recommended.Beyond))
		}
		if slices.ContainsFunc(s.Cells, func(c Cell) bool { return c.Churn != nil && c.WithoutSyncs }) {
			out = append(out, fmt.Sprintf("%s reports no syncs: its latency is that of the %d seconds of changes, without an hourly full sync.", s.Name, ChurnSeconds))
		}
	}
	add := func(is float64, tested int, what string) {
		if is > float64(tested) {
			out = append(out, fmt.Sprintf("%s %s: Kubernetes is tested with %s (SIG Scalability's thresholds); other parts of the cluster may be the limit, and are not in this plan.",
				count(int(math.Round(is))), what, count(tested)))
		}
	}
	c := q.Asked
	add(float64(c.Services), testedServices, "Services")
	add(c.Endpoints, testedEndpoints, "endpoints of a Service")
	add(float64(c.Nodes), testedNodes, "nodes")
	add(float64(c.Services)*c.Endpoints, testedPods, "endpoints, if each is a separate pod")
	if text := q.controlPlane(); text != "" {
		out = append(out, text)
	}
	return append(out, fmt.Sprintf("All sizes were measured on this machine (%s) on %s. A node with another processor or kernel has other limits.", a.Place, run.Started.UTC().Format("2006-01-02")))
}

// assumptions are what the numbers take for granted.
var assumptions = []string{
	fmt.Sprintf("A size meets the SLOs if every repetition there met them: a cold start on empty tables, %d packets to the first and the last Service, isolated changes, %d seconds of changes at the rate of that size, and bursts. A repetition ends after the start or the packets if these violate their SLO.", probePackets, ChurnSeconds),
	"Changes, rollouts and nodes grow with the number of Services, so that each pod changes as often as before.",
	"The latency of an hour is played in virtual time by the proxier's own rules of when to sync, with the durations of the syncs that were measured at that size. An hourly full sync is taken to last as long as that of the start.",
	"“Measured” means that three repetitions agree at both ends of a limit; “observed” that there are fewer. Between the ends, nothing is known.",
	"The proxier has the machine to itself. On a busy node it takes longer.",
}

// probePackets is how many packets a cell sends to each position: as in scenarios/library/plan.yaml.
const probePackets = 400

// next says what to do next.
func (a *Answer) next() (out []string) {
	use := a.InUse()
	best := use
	for i := range a.Subjects {
		if a.Subjects[i].Bracket.Met > best.Bracket.Met {
			best = &a.Subjects[i]
		}
	}
	if best != use && use.Bracket.Violated > 0 && best.Bracket.Met >= use.Bracket.Violated {
		out = append(out, fmt.Sprintf("%s goes further: `synclab migrate --from %s --to %s` shows what changing to it costs.", best.Name, use.Name, best.Name))
	}
	if slices.Contains(use.First, Start) || slices.Contains(use.First, Latency) {
		if len(a.Growth) == 0 {
			out = append(out, "The same command with --profile says which functions make its time grow.")
		}
	}
	if use.Basis == Observed {
		out = append(out, "The same command again goes on from here, until three repetitions agree; a larger --budget does so at once.")
	}
	if use.Recommended != nil && !use.Recommended.inUse(&a.Question) {
		out = append(out, "Roll out the settings on one node first, and compare kubeproxy_network_programming_duration_seconds of that node, an hour before and after.")
	}
	return out
}
