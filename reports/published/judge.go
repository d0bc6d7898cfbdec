package published

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"synclab/bench/lab/profile"
	"synclab/bench/raw"
	"synclab/reports/comparison"
	"synclab/reports/estimate"
	"synclab/reports/profiles"
	"synclab/reports/records"
	"synclab/scenarios"
	"synclab/scenarios/published"
)

// Verdict on a claim.
type Verdict string

// The verdicts.
const (
	Agrees  Verdict = "agrees"
	Differs Verdict = "differs"
	Cannot  Verdict = "cannot run here"
	// Undecided: the interval of the measured value crosses a bound, or a subject was stopped.
	Undecided Verdict = "undecided"
	// Shown: no value was published that this one could be compared with.
	Shown Verdict = "no bound published"
)

// Result is what became of a claim.
type Result struct {
	Claim   *published.Claim `json:"-"`
	Name    string           `json:"name"`
	Title   string           `json:"title"`
	Source  string           `json:"source"`
	Verdict Verdict          `json:"verdict"`
	Why     string           `json:"why,omitempty"` // what is missing; of Differs, what may explain it
	Folder  string           `json:"folder,omitempty"`
	Values  []Value          `json:"values,omitempty"`
}

// Value is one expected value and what was measured.
type Value struct {
	Say       string   `json:"say"`
	Unit      string   `json:"unit"` // of a figure; ratio: a share; empty: a number
	Published *float64 `json:"published,omitempty"`
	From      float64  `json:"from"` // 0: none
	To        float64  `json:"to"`   // 0: none
	Measured  float64  `json:"measured"`
	// Low and High are the 95 % interval from six repetitions on, else the range of the repetitions; nil of one.
	Low         *float64 `json:"low,omitempty"`
	High        *float64 `json:"high,omitempty"`
	Repetitions int      `json:"repetitions"`
	// AtLeast and AtMost: a subject was stopped, so that the value is a bound.
	AtLeast bool `json:"at_least,omitempty"`
	AtMost  bool `json:"at_most,omitempty"`
	// Verdict is any but Cannot.
	Verdict Verdict `json:"verdict"`
}

// CannotRun is the result of a claim that could not be measured.
func CannotRun(c *published.Claim, why string) Result {
	return Result{Claim: c, Name: c.Name, Title: c.Title, Source: c.Source, Verdict: Cannot, Why: why}
}

// Judge compares the run in a folder with what the claim lets expect.
func Judge(c *published.Claim, dir string) (Result, error) {
	run, err := records.Load(dir)
	if err != nil {
		return Result{}, err
	}
	collected := records.Collect([]*records.Run{run})
	stopped := slices.IndexFunc(run.Records, func(r raw.Record) bool { return r.Metric == raw.Exceeded })
	r := Result{Claim: c, Name: c.Name, Title: c.Title, Source: c.Source, Verdict: Shown, Folder: dir}
	for _, e := range c.Expect {
		v := Value{Say: e.Say, Published: e.Published, From: e.From, To: e.To}
		of := collected
		if e.Step != "" {
			of = records.Collect([]*records.Run{inStep(run, e.Step)})
		}
		err := v.measure(of, e)
		if e.Step != "" && stopped >= 0 { // the repetitions that reached the step would not be those of all
			err = fmt.Errorf("%s was stopped: %s", run.Records[stopped].Subject, run.Records[stopped].Error)
		}
		if v.Verdict = v.verdict(); err != nil {
			v.Say, v.Repetitions = v.Say+": "+err.Error(), 0
			switch {
			case v.Verdict == Shown: // it decides nothing
			case stopped >= 0:
				v.Verdict = Undecided
			default:
				return CannotRun(c, v.Say), nil
			}
		}
		switch {
		case v.Verdict == Differs:
			r.Verdict, r.Why = Differs, c.Why
		case v.Verdict == Undecided && r.Verdict != Differs:
			r.Verdict = Undecided
		case v.Verdict == Agrees && r.Verdict == Shown:
			r.Verdict = Agrees
		}
		r.Values = append(r.Values, v)
	}
	return r, nil
}

// inStep returns a run with the records of a kind of step and of the settle after it only.
func inStep(run *records.Run, step string) *records.Run {
	part, asked := *run, map[int]bool{}
	for _, r := range run.Records {
		if number, kind := scenarios.StepOf(r.Step); kind == step {
			asked[number], asked[number+1] = true, true
		}
	}
	part.Records = slices.DeleteFunc(slices.Clone(run.Records), func(r raw.Record) bool {
		number, _ := scenarios.StepOf(r.Step)
		return !asked[number]
	})
	return &part
}

// verdict compares what the value may be with the bounds: the measured value with its interval, which a stopped subject
// leaves open on one side.
func (v *Value) verdict() Verdict {
	low, high := v.Measured, v.Measured
	from, to := cmp.Or(v.From, math.Inf(-1)), cmp.Or(v.To, math.Inf(1))
	if v.Low != nil && v.High != nil {
		low, high = *v.Low, *v.High
	}
	if v.AtLeast {
		high = math.Inf(1)
	}
	if v.AtMost {
		low = math.Inf(-1)
	}
	switch {
	case v.From == 0 && v.To == 0:
		return Shown
	case low >= from && high <= to:
		return Agrees
	case high < from || low > to:
		return Differs
	}
	return Undecided
}

// measure sets the measured value.
func (v *Value) measure(c *records.Collection, e published.Expectation) error {
	var of *estimate.Estimate
	var services int
	var err error
	f, known := comparison.Named(comparison.FigureName(e.Figure))
	switch {
	case e.Function != "":
		of, err = shares(c, e)
	case known:
		of, services, err = at(c, f.Name, e.Detail, e.Of)
	default:
		err = fmt.Errorf("there is no figure %s", e.Figure)
	}
	if err != nil {
		return err
	}
	v.Unit, v.Measured, v.Repetitions, v.AtLeast = cmp.Or(f.Unit, of.Unit), of.Value, len(of.ByRepetition), of.Stopped
	v.Low, v.High = bounds(of)
	if e.Over == nil {
		return nil
	}
	over, less, err := at(c, f.Name, e.Detail, e.Over)
	if err != nil {
		return err
	}
	ratio, ok := estimate.Compare(over, of, estimate.Paired)
	if !ok {
		return fmt.Errorf("nothing to divide by: %s is %v", e.Figure, over.Value)
	}
	ratio.BoundFew(over, of, estimate.LeastSpread)
	v.Unit, v.Measured, v.Low, v.High, v.AtMost = "", ratio.Value, ratio.Low, ratio.High, over.Stopped
	if v.AtLeast && v.AtMost {
		return fmt.Errorf("both subjects were stopped")
	}
	if e.Growth {
		grow := func(times float64) float64 { return math.Log(times) / math.Log(float64(services)/float64(less)) }
		for _, bound := range []*float64{&v.Measured, v.Low, v.High} {
			if bound != nil {
				*bound = grow(*bound)
			}
		}
	}
	return nil
}

// bounds are the interval of an estimate, or the range of its repetitions.
func bounds(e *estimate.Estimate) (low, high *float64) {
	if e.Low != nil {
		return e.Low, e.High
	}
	return e.RangeLow, e.RangeHigh
}

// matches reports whether a cell is that of a place.
func matches(p *published.Place, cell records.Cell) bool {
	if p.Services != 0 && p.Services != cell.Services {
		return false
	}
	for field, value := range p.Params {
		if cell.Params[field] != value {
			return false
		}
	}
	return cell.Params[raw.ProfileField] != raw.ProfileOn
}

// at returns a figure at a place, and the Services there. A figure that there is several times, such as one for each fault, has a
// detail, and the claim says which one.
func at(c *records.Collection, name, detail string, p *published.Place) (*estimate.Estimate, int, error) {
	var of *records.Samples
	for one, samples := range c.Each() {
		if !matches(p, samples.Cell) || p.Subject != "" && p.Subject != one.Subject {
			continue
		}
		if of != nil {
			return nil, 0, fmt.Errorf("the claim does not say which of several sizes or subjects it is about")
		}
		of = samples
	}
	var found []*estimate.Estimate
	if of != nil {
		for _, f := range comparison.RunFigures(of) {
			if f.Name == name && strings.Contains(f.Detail, detail) {
				if e := f.Of(of, comparison.SourceOf([]*records.Samples{of}), comparison.ExceededOf(of)); e != nil {
					found = append(found, e)
				}
			}
		}
	}
	switch len(found) {
	case 0:
		return nil, 0, fmt.Errorf("%s was not measured", name)
	case 1:
		return found[0], of.Cell.Services, nil
	default:
		return nil, 0, fmt.Errorf("%s was measured %d times: the claim needs the detail of one", name, len(found))
	}
}

// shares returns a function's share of a sync's time.
func shares(c *records.Collection, e published.Expectation) (*estimate.Estimate, error) {
	all, _, _, problems := profiles.Load(c.Runs)
	if len(problems) > 0 {
		return nil, fmt.Errorf("profile: %s", problems[0])
	}
	i := slices.IndexFunc(all, func(p *profiles.Profile) bool {
		return p.Kind == e.Kind && (e.Of.Subject == "" || e.Of.Subject == p.Subject) && (e.Of.Services == 0 || e.Of.Services == p.Cell.Services)
	})
	if i < 0 {
		return nil, fmt.Errorf("there is no profile of a %s", profiles.KindText(e.Kind))
	}
	ones, sums, each := map[records.Repetition]float64{}, map[records.Repetition]float64{}, estimate.Sample{}
	for _, f := range all[i].Functions {
		for of, own := range f.Self {
			if f.Origin == profile.Kernel || e.All {
				sums[of] += own[0]
				if f.Name == e.Function {
					ones[of] += own[0]
				}
			}
		}
	}
	for of, sum := range sums {
		if sum > 0 {
			each[of] = []float64{ones[of] / sum}
		}
	}
	if len(each) == 0 {
		return nil, fmt.Errorf("the profile has no functions of the kernel")
	}
	return estimate.Of(e.Function, "ratio", each, 50), nil
}
