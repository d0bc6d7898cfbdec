package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"synclab/bench"
	"synclab/bench/raw"
	"synclab/bench/search"
	"synclab/reports/profiles"
	"synclab/reports/records"
)

// Answer is the answer to a Question.
type Answer struct {
	Question Question        `json:"question"`
	Run      string          `json:"run"`
	Place    string          `json:"place"` // machine, kernel and versions, in words
	Command  string          `json:"command"`
	Status   string          `json:"status"`
	Subjects []SubjectAnswer `json:"subjects"`
	Remarks  []string        `json:"remarks,omitempty"`
	// Growth says which functions make the syncs grow, if profiles were taken.
	Growth []profiles.Growth `json:"-"`
	// Foreign: read from a file of another user, or with a command that Synclab did not write.
	Foreign bool `json:"-"`
}

// Basis says how well a limit is known.
type Basis string

// The bases.
const (
	// Measured: three repetitions agree at both ends of the bracket.
	Measured Basis = "measured"
	// Observed: fewer repetitions.
	Observed Basis = "observed"
)

// SubjectAnswer is the answer for one subject.
type SubjectAnswer struct {
	Name string `json:"name"`
	// Error says why it was not measured; empty: it was.
	Error   string         `json:"error,omitempty"`
	Bracket search.Bracket `json:"bracket"`
	Basis   Basis          `json:"basis,omitempty"`
	// First are the SLOs that are violated at the bracket's end, with the values there; of an open one, empty.
	First []string `json:"first,omitempty"`
	Cells []Cell   `json:"cells"`
	// Settings were played at Bracket.Met, and Recommended is one of them; nil: nothing meets the SLOs, or nothing changes.
	Settings    []Setting  `json:"settings,omitempty"`
	Recommended *Setting   `json:"recommended,omitempty"`
	Confirmed   *Confirmed `json:"confirmed,omitempty"`
	// MemoryLimit is the recommended limit of its pod, in bytes; 0: unknown.
	MemoryLimit uint64 `json:"memoryLimit,omitempty"`
	// Extrapolated is the size at which the SLO nearest to its bound would be violated if it grew on as between the two largest
	// sizes; at most twice the largest. 0: not asked for.
	Extrapolated int `json:"extrapolated,omitempty"`
}

// agreeing is the number of repetitions that make a limit measured.
const agreeing = 3

// NewAnswer makes the answer from a plan's run.
func NewAnswer(q Question, run *raw.Run, records []raw.Record) (*Answer, error) {
	a := &Answer{Question: q, Run: run.ID, Command: run.Command, Status: run.Status}
	a.Place = fmt.Sprintf("%s × %d, Linux %s", run.Machine.CPU, run.Machine.CPUs, run.Versions.Kernel)
	of := map[string][]Cell{}
	for _, from := range bench.PlanCells(records) {
		c, err := ReadCell(&q, from)
		if err != nil { // an interrupted cell, or one that a budget stopped
			continue
		}
		of[c.Subject] = append(of[c.Subject], c)
	}
	for _, name := range run.Subjects {
		s, err := subjectAnswer(&q, name, of[name])
		if err != nil {
			return nil, err
		}
		for _, text := range run.LeftOut {
			if rest, ok := strings.CutPrefix(text, name+": "); ok && len(s.Cells) == 0 {
				s.Error = rest
			}
		}
		a.Subjects = append(a.Subjects, s)
	}
	a.Remarks = a.remarks(run)
	return a, nil
}

// Explain reads the profiles of a plan's folder, if there are any.
func (a *Answer) Explain(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, raw.ProfilesFolder)); err != nil {
		return nil
	}
	runs, err := records.LoadAll([]string{dir})
	if err != nil {
		return err
	}
	report, problems := profiles.Read(records.Collect(runs))
	if report != nil {
		a.Growth = report.Growth
	}
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "\n"))
	}
	return nil
}

func subjectAnswer(q *Question, name string, cells []Cell) (SubjectAnswer, error) {
	s := SubjectAnswer{Name: name, Cells: cells}
	found := search.New(search.Options{})
	found.Subject(name, 0)
	for i := range cells {
		if cells[i].Setting == "" {
			outcome, _ := cells[i].Outcome(q)
			found.Add(name, cells[i].Size, outcome, 0)
		}
	}
	if len(cells) == 0 {
		return s, nil
	}
	s.Bracket = found.Bracket(name)
	s.Basis = Measured
	if s.Bracket.Met == 0 && s.Bracket.Violated == 0 || s.Bracket.Met > 0 && s.Bracket.MetReps < agreeing || s.Bracket.Violated > 0 && s.Bracket.ViolatedReps < agreeing {
		s.Basis = Observed
	}
	for _, one := range slos {
		if slices.ContainsFunc(s.at(s.Bracket.Violated), func(c Cell) bool { return slices.Contains(c.Violated, one.name) }) {
			s.First = append(s.First, one.name)
		}
	}
	if err := s.set(q); err != nil {
		return s, fmt.Errorf("%s: %w", name, err)
	}
	if q.Extrapolate && s.Bracket.Violated == 0 {
		s.Extrapolated = s.extrapolate(q)
	}
	return s, nil
}

// at returns the repetitions at a size, with the settings in use.
func (s *SubjectAnswer) at(size int) []Cell {
	return slices.DeleteFunc(slices.Clone(s.Cells), func(c Cell) bool { return c.Size != size || c.Setting != "" })
}

// Value returns the median of an SLO's quantity at a size; false: unknown.
func (s *SubjectAnswer) Value(name string, size int) (v Value, ok bool) {
	var all []Value
	for _, c := range s.at(size) {
		if one, ok := c.Values[name]; ok {
			all = append(all, one)
		}
	}
	if len(all) == 0 {
		return v, false
	}
	slices.SortFunc(all, func(a, b Value) int { return cmp.Compare(a.V, b.V) })
	return all[(len(all)-1)/2], true
}

// Sizes returns the measured sizes, smallest first.
func (s *SubjectAnswer) Sizes() (sizes []int) {
	for _, c := range s.Cells {
		if c.Setting == "" {
			sizes = append(sizes, c.Size)
		}
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// set finds the settings at the largest size that meets the SLOs, and compares the recommended one with its run.
func (s *SubjectAnswer) set(q *Question) error {
	var measured []costs
	for _, c := range s.at(s.Bracket.Met) {
		measured = join(measured, c.costs)
		if v := c.Values[Memory]; v.V > 0 {
			s.MemoryLimit = max(s.MemoryLimit, memoryLimit(v.V))
		}
	}
	cluster := q.Asked.At(max(1, s.Bracket.Met))
	if s.Bracket.Met == 0 || !cluster.changes() || !slices.ContainsFunc(measured, func(c costs) bool { return len(c.partial) > 0 }) {
		return nil
	}
	all, err := settings(q, s.Name, &cluster, measured)
	if err != nil || len(all) == 0 {
		return err
	}
	best := recommend(all)
	s.Settings, s.Recommended = all, &best
	return s.confirm(q, &cluster, measured)
}

// confirm compares what the loop makes of the recommended setting with its run.
func (s *SubjectAnswer) confirm(q *Question, cluster *Cluster, measured []costs) error {
	runs := slices.DeleteFunc(slices.Clone(s.Cells), func(c Cell) bool {
		return c.Size != s.Bracket.Met || c.Setting != s.Recommended.String()
	})
	out := Confirmed{Run: len(runs) > 0}
	if !out.Run {
		if !s.Recommended.inUse(q) {
			return nil
		}
		runs = s.at(s.Bracket.Met)
	}
	played, err := playChurn(q, s.Name, cluster, measured, s.Recommended.Setting)
	if err != nil {
		return err
	}
	var p99, cpu []float64
	violated := ""
	for _, c := range runs {
		if v := c.Values[Memory]; v.V > 0 {
			s.MemoryLimit = max(s.MemoryLimit, memoryLimit(v.V))
		}
		if c.Churn != nil && c.ChurnCPU != nil {
			p99, cpu = append(p99, *c.Churn), append(cpu, *c.ChurnCPU)
		}
		if _, why := c.Outcome(q); why != "" {
			violated = why
		}
	}
	if len(p99) == 0 {
		return nil
	}
	out.PlayedP99, out.PlayedCPU, out.MeasuredP99, out.MeasuredCPU = played.P99, played.CPU, quantile(p99, 0.5), quantile(cpu, 0.5)
	out.Outcome = "meets every SLO"
	if violated != "" {
		out.Outcome = "violates " + violated
	}
	s.Confirmed = &out
	return nil
}

// ChurnSeconds is how long a cell has changes at the asked rate.
const ChurnSeconds = 15

// memoryLimit is the peak with a quarter more, rounded up to 16 MiB: the peak of another repetition, and of a restart over
// existing rules, is a little higher.
func memoryLimit(peak float64) uint64 {
	const step = 16 << 20
	return uint64(math.Ceil(1.25*peak/step)) * step
}

// Confirm returns the settings that a plan should measure: those that differ from the one in use.
func Confirm(q *Question, brackets map[string]search.Bracket, cells []bench.PlanCell) []bench.Trial {
	var out []bench.Trial
	for _, name := range q.Subjects {
		var of []Cell
		for _, from := range cells {
			if from.Subject == name && from.Size == brackets[name].Met {
				if c, err := ReadCell(q, from); err == nil {
					of = append(of, c)
				}
			}
		}
		s := SubjectAnswer{Name: name, Bracket: brackets[name], Cells: of}
		if err := s.set(q); err != nil || s.Recommended == nil || s.Recommended.inUse(q) {
			continue
		}
		out = append(out, bench.Trial{Subject: name, Size: brackets[name].Met, Setting: s.Recommended.Setting})
	}
	return out
}

// Judge judges one repetition, for bench.Plan.
func Judge(q *Question) func(bench.PlanCell) (search.Outcome, string, error) {
	return func(from bench.PlanCell) (search.Outcome, string, error) {
		c, err := ReadCell(q, from)
		if err != nil {
			return 0, "", err
		}
		outcome, why := c.Outcome(q)
		return outcome, why, nil
	}
}

// sameSpeed is how much the starts of two plans may differ.
const sameSpeed = 0.1

// Alike reports whether a cell that was measured again starts as fast as before.
func Alike(q *Question) func(known []bench.PlanCell, again bench.PlanCell) (bool, string) {
	return func(known []bench.PlanCell, again bench.PlanCell) (bool, string) {
		var before []float64
		for _, from := range known {
			if c, err := ReadCell(q, from); err == nil && !c.Values[Start].AtLeast {
				before = append(before, c.Values[Start].V)
			}
		}
		now, err := ReadCell(q, again)
		if err != nil || len(before) == 0 || now.Values[Start].AtLeast {
			return false, "cells of earlier plans are left out: the one to compare has no start"
		}
		was, is := quantile(before, 0.5), now.Values[Start].V
		text := fmt.Sprintf("at %d Services it starts in %s, and did in %s", again.Size, amount(slos[0], is), amount(slos[0], was))
		if math.Abs(is/was-1) > sameSpeed {
			return false, text + ": cells of earlier plans are left out, since the machine is not as fast as then"
		}
		return true, text + ": cells of earlier plans are used"
	}
}

// extrapolate returns the size at which the first SLO would be violated, by the power with which its quantity grew between the
// two largest sizes; at most twice the largest.
func (s *SubjectAnswer) extrapolate(q *Question) int {
	sizes := s.Sizes()
	if len(sizes) < 2 {
		return 0
	}
	near, far := sizes[len(sizes)-2], sizes[len(sizes)-1]
	size := 2 * float64(far)
	for _, one := range slos {
		bound := one.bound(q.SLOs)
		b, _ := s.Value(one.name, far)
		if power := s.exponent(one.name, near, far); bound > 0 && power > 0 {
			size = min(size, float64(far)*math.Pow(bound/b.V, 1/power))
		}
	}
	return int(size)
}

// exponent is the power with which an SLO's quantity grows between two sizes; 0: it does not, or is unknown.
func (s *SubjectAnswer) exponent(name string, near, far int) float64 {
	a, okA := s.Value(name, near)
	b, okB := s.Value(name, far)
	if !okA || !okB || b.V <= a.V || a.V <= 0 {
		return 0
	}
	return math.Log(b.V/a.V) / math.Log(float64(far)/float64(near))
}

// Timeout returns how long a cell may take to converge: twice the SLO for the start, since a longer one violates it anyway.
func (q *Question) Timeout() time.Duration {
	if q.SLOs.Start == 0 {
		return 10 * time.Minute
	}
	return max(nanoseconds(2*q.SLOs.Start), 30*time.Second) + 2*q.MinSyncPeriod
}
