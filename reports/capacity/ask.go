package capacity

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"synclab/reports/model"
)

// stages is the number of progress reports for each subject.
const stages = 6

// points is the number of points of a curve, from the smallest to the largest evaluated cluster.
const points = 12

// Ask answers a question from a cost model. If told is not nil, it receives the progress. The same model and question
// give the same answer, to the last bit, on any number of CPUs. When ctx ends, Ask returns its error.
func Ask(ctx context.Context, m *model.Model, q Question, told func(done, of int, what string)) (*Answer, error) {
	out := &Answer{Model: m, Run: m.Run}
	if err := q.fill(m); err != nil {
		return nil, fmt.Errorf("capacity: %w", err)
	}
	if out.Defaulted = len(q.SLOs.Given()) == 0; out.Defaulted {
		q.SLOs = q.SLOs.WithDefaults()
	}
	out.Question, out.Unit = q, q.Growth.Unit()
	if _, grows := q.Growth.filled(); grows {
		target := q.Today.At(q.Growth, 1)
		out.Target = &target
	}
	askers, err := askersOf(ctx, m, &q)
	if err != nil {
		return nil, fmt.Errorf("capacity: %w", err)
	}
	if err := answerAll(askers, out, told); err != nil {
		return nil, fmt.Errorf("capacity: %w", err)
	}
	for i := range out.Subjects[1:] {
		out.Comparisons = append(out.Comparisons, compare(&out.Subjects[0], &out.Subjects[i+1], q))
	}
	out.Remarks = remarks(m, q, out)
	out.Words = out.say()
	return out, nil
}

// fill validates a question and completes it.
func (q *Question) fill(m *model.Model) error {
	if err := q.Validate(); err != nil {
		return err
	}
	q.Today.fill()
	if len(q.Subjects) == 0 {
		for _, s := range m.Subjects {
			q.Subjects = append(q.Subjects, s.Name)
		}
	}
	if len(q.Subjects) == 0 {
		return errors.New("the model has no subject")
	}
	return nil
}

func askersOf(ctx context.Context, m *model.Model, q *Question) ([]*asker, error) {
	var out []*asker
	for _, name := range q.Subjects {
		s, err := m.Subject(name)
		if err != nil {
			return nil, err
		}
		a := &asker{ctx: ctx, q: q, model: m, subject: s, policy: defaultPolicy(name), memo: map[situation]*simulated{}, ready: map[[2]float64]*prepared{}}
		if q.Policy != nil {
			p := *q.Policy
			if !supports(name, p.Runner) {
				p.Runner, p.Burst = a.policy.Runner, 0
				if q.Policy.Runner != "" {
					a.remark("policy %s is not supported: %s is used instead", q.Policy.Runner, p.Runner)
				}
			}
			a.policy = p
		}
		a.remarks = append(a.remarks, a.lacking()...)
		out = append(out, a)
	}
	return out, nil
}

// answerAll runs one asker for each CPU at a time. Askers share no results.
func answerAll(askers []*asker, out *Answer, told func(done, of int, what string)) error {
	out.Subjects = make([]SubjectAnswer, len(askers))
	errs := make([]error, len(askers))
	var mu sync.Mutex
	done := 0
	var all sync.WaitGroup
	turns := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, a := range askers {
		a.told = func(what string) {
			mu.Lock()
			defer mu.Unlock()
			done++
			if told != nil {
				told(done, stages*len(askers), a.subject.Name+": "+what)
			}
		}
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			out.Subjects[i], errs[i] = a.answer(out.Target != nil)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// answer computes everything for one subject.
func (a *asker) answer(grows bool) (SubjectAnswer, error) {
	s := SubjectAnswer{Name: a.subject.Name, WatchDelay: watchDelayOf(a.subject, a.q)}
	err := a.fillIn(&s, grows)
	s.Remarks = a.remarks
	if err != nil {
		return s, fmt.Errorf("%s: %w", s.Name, err)
	}
	return s, nil
}

func (a *asker) fillIn(s *SubjectAnswer, grows bool) (err error) {
	if s.Today, err = a.outlook(0, a.at(0), a.policy, true); err != nil {
		return err
	}
	scale, here := 0.0, &s.Today
	if grows {
		target, err := a.outlook(1, a.at(1), a.policy, true)
		if err != nil {
			return err
		}
		s.Target, scale, here = &target, 1, &target
	}
	if e, ok := here.Quantities[Memory]; ok {
		s.MemoryLimit = memoryLimit(e)
	}
	a.told("today and target")
	if s.Curve, err = a.curve(); err != nil {
		return err
	}
	a.told("curve")
	if s.Limits, err = a.limits(a.policy); err != nil {
		return err
	}
	a.told("limits")
	if s.Frontier, err = a.frontier(scale, a.at(scale)); err != nil {
		return err
	}
	if s.Furthest, err = a.furthest(s.Frontier); err != nil {
		return err
	}
	a.told("settings")
	if err = a.choose(s); err != nil {
		return err
	}
	best := s.RecommendedLimits
	a.told("largest cluster")
	if len(best) > 0 {
		if s.Sensitivity, err = a.sensitivity(s.Recommended.Policy, s.Largest); err != nil {
			return err
		}
	}
	a.told("sensitivity")
	asked := []Cluster{s.Today.Cluster, here.Cluster}
	if s.Largest.Size.Median > 0 {
		asked = append(asked, s.Largest.Cluster)
	}
	return a.changes(asked)
}

// mostChosen is the number of candidates whose limits are computed before the setting in use stays. Each takes many
// simulations.
const mostChosen = 4

// choose sets the recommended setting and its limits. It skips a setting with a smaller limit than the one in use, at
// the median or at the lower bound. It skips none if the setting in use is discouraged, or if none meets the SLOs here.
func (a *asker) choose(s *SubjectAnswer) (err error) {
	used := s.Frontier[slices.IndexFunc(s.Frontier, func(one Setting) bool { return one.InUse })]
	now, left := Largest(s.Limits), slices.Clone(s.Frontier)
	for range mostChosen {
		one := recommend(left, s.Furthest, a.q.SLOs)
		if one.InUse || one.Outlook.Cluster.rate() == 0 { // without changes, no setting is better than another
			break
		}
		limits, err := a.limits(one.Policy)
		if err != nil {
			return err
		}
		s.Recommended, s.RecommendedLimits, s.Largest = one, limits, Largest(limits)
		far := s.Largest.Size
		if used.Discouraged != "" || s.holdsNowhere(a.q.SLOs) || far.Median >= now.Size.Median && far.Low >= now.Size.Low {
			return nil
		}
		left = slices.DeleteFunc(left, func(other Setting) bool { return other.Policy == one.Policy })
	}
	s.Recommended, s.RecommendedLimits, s.Largest = used, s.Limits, now
	return nil
}

// curve evaluates all scales of the search, at equal steps. A step multiplies the size by a constant factor. The scales
// of today and of the target are included.
func (a *asker) curve() ([]Evaluation, error) {
	r := a.span()
	from := max(r.low, -2*r.step)
	_, grows := a.q.Growth.filled()
	var scales []float64
	for i := range points {
		scale := from + (r.high-from)*float64(i)/(points-1)
		for _, mark := range []float64{0, 1} {
			if (mark == 0 || grows) && len(scales) > 0 && scales[len(scales)-1] < mark && mark < scale {
				scales = append(scales, mark)
			}
		}
		scales = append(scales, scale)
	}
	var out []Evaluation
	for _, scale := range scales {
		o, err := a.outlook(scale, a.at(scale), a.policy, true)
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}

// remarks returns the remarks on the whole answer.
func remarks(m *model.Model, q Question, a *Answer) []string {
	out := []string{fmt.Sprintf("based on calibration %s: kernel %s, %d CPUs", m.Run, m.Versions.Kernel, m.Machine.CPUs)}
	if q.WatchDelay == 0 {
		out = append(out, "latencies start when a change reaches the API server if the calibration measured the watch delay, else when the node receives the change; earlier delays in the control plane, and its load, are not included")
	}
	if q.Today.rate() == 0 {
		out = append(out, "nothing changes in this cluster: there is no latency, and CPU is at most that of hourly full syncs")
	}
	for _, s := range a.Subjects {
		for _, o := range []*Evaluation{&s.Today, s.Target} {
			if o != nil && o.FullSync.Beyond > mostBeyond {
				size := fmt.Sprintf("%d Service%s", o.Cluster.Services, plural(o.Cluster.Services))
				if o.FullSync.Below {
					out = append(out, fmt.Sprintf("%s: %s are %s times below the smallest measured size: predictions are capped at the values of that size",
						s.Name, o.Cluster.size(model.Measured), digits(o.FullSync.Beyond, model.Extrapolated)))
					continue
				}
				if a.Unit != InServices {
					size = o.Cluster.size(model.Measured)
				}
				out = append(out, fmt.Sprintf("%s: %s are %s times beyond the measured sizes: the numbers there are not reliable",
					s.Name, size, digits(o.FullSync.Beyond, model.Extrapolated)))
			}
		}
	}
	return out
}
