package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"synclab/bench/lab/machine"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/search"
	"synclab/proxier/runner"
	"synclab/scenarios"
	"synclab/sim"
)

// superlinear is the first size of subjects whose full sync grows so fast that the asked size may take all the time:
// kube-proxy/iptables-nft takes 414 s at 5,000 Services.
const superlinear = 1000

// PlanOptions describe the search for the largest clusters that meet SLOs. Run needs WorkerArgs and ProxyArgs; its Scenario,
// Objects and Reps are not used.
type PlanOptions struct {
	Run    ExecuteOptions
	Search search.Options
	// Budget limits the time, without the builds of programs.
	Budget time.Duration
	// Cluster returns the scenario of a cell, and the objects of its cluster; nil: those of the scenario's shape.
	Cluster func(size int) (scenarios.Scenario, *sim.Objects, error)
	// Judge judges the records of one repetition: whether the SLOs are met, and in a few words why not.
	Judge func(cell PlanCell) (search.Outcome, string, error)
	// Enough ends a repetition early: what is left would not change that an SLO is violated.
	Enough []pass.Bound
	// Known are the cells of earlier plans of the same question. A subject's are used if its program is the same, and one of
	// them, measured again, is Alike; else they are left out.
	Known []PlanCell
	Alike func(known []PlanCell, again PlanCell) (alike bool, text string)
	// Opened is called with the run's folder, before anything is measured.
	Opened func(dir string) error
	// Confirm returns, when the search has ended, the settings to measure: the subjects in use first.
	Confirm func(brackets map[string]search.Bracket, cells []PlanCell) []Trial
}

// PlanCell is one repetition of one cell.
type PlanCell struct {
	Subject string // as in records
	Size    int    // Services
	Setting string // the Setting that it confirms; empty: the settings in use
	Rep     int
	Records []raw.Record
	// Programs are those of its run (raw.Run.Programs).
	Programs map[string]string
}

// Took is the time from the beginning of the repetition to its last record.
func (c PlanCell) Took() time.Duration {
	last := 0.0
	for _, r := range c.Records {
		last = max(last, r.At)
	}
	return time.Duration(last * float64(time.Second))
}

// Setting decides when a proxier syncs. The zero value has the settings in use.
type Setting struct {
	MinSyncPeriod time.Duration `json:"minSyncPeriod"`
	Policy        runner.Policy `json:"policy,omitempty"` // empty: that of the subject's name
}

// String returns the setting as a PlanCell has it: "500ms", "1s token-bucket".
func (s Setting) String() string {
	if s == (Setting{}) {
		return ""
	}
	return strings.TrimSpace(fmt.Sprint(s.MinSyncPeriod, " ", s.Policy))
}

// Trial is a Setting to measure.
type Trial struct {
	Subject string
	Size    int
	Setting Setting
}

// Names of the swept values of a Setting.
const (
	periodField = "proxy.minSyncPeriod"
	policyField = "proxy.policy"
)

// PlanCells returns the cells of a plan's records, in the order of their first records. Records without a size are left out.
func PlanCells(records []raw.Record) []PlanCell {
	type id struct {
		subject, setting string
		size, rep        int
	}
	index := map[id]int{}
	var out []PlanCell
	for _, r := range records {
		size, err := strconv.Atoi(r.Params[raw.PlanSizeField])
		if err != nil {
			continue
		}
		key := id{r.Subject, strings.TrimSpace(r.Params[periodField] + " " + r.Params[policyField]), size, r.Rep}
		i, known := index[key]
		if !known {
			i = len(out)
			index[key] = i
			out = append(out, PlanCell{Subject: r.Subject, Setting: key.setting, Size: size, Rep: r.Rep})
		}
		out[i].Records = append(out[i].Records, r)
	}
	return out
}

// planning is a running plan.
type planning struct {
	*PlanOptions
	search   *search.Search
	w        *raw.RunWriter
	programs map[string]string // of this run
	deadline time.Time
	text     map[string]string // the subjects as they were asked for, by their names in records
	reps     map[string]int    // repetitions of a cell, by its name
	left     []PlanCell        // known cells that no check has used or left out yet
	cells    []PlanCell
	passes   int
}

// Plan searches, for each subject, the largest cluster that meets the SLOs. Each cell is measured as any run's. It returns the
// folder, also with an error: the folder has what was measured until then. A subject that cannot be measured is left out, and
// run.json says why.
func Plan(ctx context.Context, o PlanOptions) (dir string, err error) {
	base, objects, err := o.Cluster(o.Search.Asked)
	if err != nil {
		return "", err
	}
	var left []string
	if objects != nil {
		if left, err = fitSteps(&base, objects, false); err != nil {
			return "", err
		}
	}
	o.Run.Scenario, o.Run.Reps, o.Run.plans, o.Run.Feed = &base, o.Search.Agreeing, true, raw.FeedAPI
	if err := o.Run.fill(); err != nil {
		return "", err
	}
	if err := o.Run.sweep(); err != nil {
		return "", err
	}
	run := raw.Run{
		Started: time.Now(), Command: o.Run.Command, Scenario: base, Reps: o.Run.Reps, Seed: base.Seed, Feed: o.Run.Feed,
		LeftOut: left, Observed: raw.ObservedKernel, Versions: machine.DetectVersions(ctx), Machine: machine.DetectMachine(),
	}
	p := &planning{PlanOptions: &o, search: search.New(o.Search), text: map[string]string{}, reps: map[string]int{}}
	for i, about := range o.Run.parsed {
		run.Subjects = append(run.Subjects, about.Name)
		p.text[about.Name] = o.Run.Subjects[i]
		first := 0
		if about.Superlinear {
			first = min(superlinear, o.Search.Asked)
		}
		p.search.Subject(about.Name, first)
	}
	if err := o.Run.prepareTools(ctx, &run); err != nil {
		return "", err
	}
	p.deadline, p.programs, p.left = time.Now().Add(o.Budget), run.Programs, o.Known
	if p.w, err = o.Run.open("plan", run); err != nil {
		return "", err
	}
	if err = o.Opened(p.w.Dir()); err == nil {
		err = errors.Join(p.run(ctx, run.Subjects), p.keep(ctx))
	}
	status, reason := raw.StatusComplete, ""
	switch {
	case ctx.Err() != nil:
		status, reason, err = raw.StatusInterrupted, "interrupted", ctx.Err()
	case err != nil:
		status, reason = raw.StatusFailed, err.Error()
	}
	return p.w.Dir(), errors.Join(err, p.w.Close(status, reason))
}

func (p *planning) run(ctx context.Context, subjects []string) error {
	for _, name := range subjects {
		if err := p.reuse(ctx, name); err != nil {
			return err
		}
	}
	for {
		name, size, _, ok := p.search.Next(time.Until(p.deadline) - p.reserved(subjects[0]))
		if !ok {
			break
		}
		if _, err := p.measure(ctx, name, size, Setting{}); err != nil {
			return err
		}
	}
	brackets := map[string]search.Bracket{}
	for _, name := range subjects {
		brackets[name] = p.search.Bracket(name)
	}
	for _, s := range p.Confirm(brackets, slices.Clone(p.cells)) {
		expected := p.longest(s.Subject, s.Size)
		if expected > time.Until(p.deadline) {
			p.note(s.Subject, fmt.Sprintf("minSyncPeriod %v is not confirmed: the budget has no %v left", s.Setting, expected.Round(time.Second)))
			continue
		}
		if _, err := p.measure(ctx, s.Subject, s.Size, s.Setting); err != nil {
			return err
		}
	}
	return nil
}

// reserved is the time that the confirmation of a subject's setting will take.
func (p *planning) reserved(name string) time.Duration {
	return p.longest(name, p.search.Bracket(name).Met) * 3 / 2 // the cell before may take longer than expected, too
}

func (p *planning) longest(name string, size int) (longest time.Duration) {
	for _, c := range p.cells {
		if c.Subject == name && c.Size == size {
			longest = max(longest, c.Took())
		}
	}
	return longest
}

// reuse takes over the known cells of a subject if the machine still is as fast: one of them is measured again, of about half
// the asked size.
func (p *planning) reuse(ctx context.Context, name string) error {
	var known []PlanCell
	var outcomes []search.Outcome
	other := false
	for _, c := range p.Known {
		if c.Subject != name {
			continue
		}
		if !maps.Equal(programsOf(name, c.Programs), programsOf(name, p.programs)) {
			other = true
			continue
		}
		if outcome, _, err := p.Judge(c); err == nil { // else it was interrupted
			known, outcomes = append(known, c), append(outcomes, outcome)
		}
	}
	if other {
		p.note(name, "cells of earlier plans with another build of it are left out")
	}
	if len(known) == 0 {
		return nil
	}
	distance := func(c PlanCell) int { return max(c.Size-p.Search.Asked/2, p.Search.Asked/2-c.Size) }
	check := slices.MinFunc(known, func(a, b PlanCell) int { return distance(a) - distance(b) })
	if check.Took() > time.Until(p.deadline) {
		p.note(name, "cells of earlier plans are left out: there is no time to check one of them")
		return nil
	}
	again, err := p.measure(ctx, name, check.Size, Setting{})
	if err != nil || again == nil {
		return err
	}
	p.left = slices.DeleteFunc(slices.Clone(p.left), func(c PlanCell) bool { return c.Subject == name })
	same := slices.DeleteFunc(slices.Clone(known), func(c PlanCell) bool { return c.Size != check.Size })
	alike, text := p.Alike(same, *again)
	p.note(name, text)
	if !alike {
		return nil
	}
	for k, c := range known {
		if err := p.take(c); err != nil {
			return err
		}
		p.search.Add(name, c.Size, outcomes[k], c.Took())
	}
	return nil
}

// take writes the records of a known cell.
func (p *planning) take(c PlanCell) error {
	key := cellKey(c.Subject, c.Size, Setting{})
	p.reps[key]++
	c.Rep = p.reps[key]
	p.cells = append(p.cells, c)
	for i := range c.Records {
		c.Records[i].Rep = c.Rep
	}
	return p.w.Write(c.Records...)
}

// keep writes the known cells that an interrupted plan has not come to, since it may have replaced the folder that had them.
func (p *planning) keep(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	for _, c := range p.left {
		if err := p.take(c); err != nil {
			return err
		}
	}
	return nil
}

// programsOf returns the programs that a subject's cells depend on: its own, and what its name adds.
func programsOf(name string, all map[string]string) map[string]string {
	out := map[string]string{}
	for of, digest := range all {
		if of == name || strings.HasPrefix(name, of+"/") || strings.HasPrefix(of, "+") && strings.Contains(name, of) {
			out[of] = digest
		}
	}
	return out
}

func cellKey(name string, size int, setting Setting) string {
	return fmt.Sprint(name, " ", size, " ", setting)
}

func (p *planning) note(name, text string) {
	p.Run.Progress(Progress{Subject: name, Note: name + ": " + text, Left: max(0, time.Until(p.deadline))})
}

// failed takes note of a subject that cannot be measured at a size.
func (p *planning) failed(name string, size int, err error) error {
	text := fmt.Sprintf("cannot be measured at %d Services: %v", size, err)
	p.note(name, text)
	p.search.Fail(name, size)
	return p.w.Update(func(run *raw.Run) { run.LeftOut = append(run.LeftOut, name+": "+text) })
}

// measure measures one repetition of a cell. It returns nil for a subject that cannot be measured there.
func (p *planning) measure(ctx context.Context, name string, size int, setting Setting) (*PlanCell, error) {
	s, objects, err := p.Cluster(size)
	if err == nil && objects != nil {
		_, err = fitSteps(&s, objects, false)
	}
	if err != nil {
		return nil, p.failed(name, size, err)
	}
	params := map[string]string{raw.PlanSizeField: strconv.Itoa(size)}
	if p.Run.Profile {
		params[raw.ProfileField] = raw.ProfileOn
	}
	if setting.MinSyncPeriod > 0 {
		s.Proxy.MinSyncPeriod = setting.MinSyncPeriod
		params[periodField] = setting.MinSyncPeriod.String()
	}
	if setting.Policy != "" {
		s.Proxy.Policy = string(setting.Policy)
		params[policyField] = string(setting.Policy)
	}
	p.passes++
	key := cellKey(name, size, setting)
	p.reps[key]++
	if p.reps[key] > p.Run.Reps { // those of earlier plans count, too
		if err := p.w.Update(func(run *raw.Run) { run.Reps = max(run.Reps, p.reps[key]) }); err != nil {
			return nil, err
		}
	}
	cell := PlanCell{Subject: name, Size: size, Setting: setting.String(), Rep: p.reps[key]}
	o := p.Run
	o.Objects, o.enough = objects, p.Enough
	o.noted = func(r *raw.Record) { cell.Records = append(cell.Records, *r) }
	at := slot{subject: p.text[name], rep: cell.Rep, cell: scenarios.Cell{Scenario: s, Params: params}, turn: p.passes}
	progress := Progress{Subject: name, Cell: o.cellName(scenarios.Cell{Scenario: s}), Rep: cell.Rep, Reps: p.Search.Agreeing, Pass: p.passes, Left: max(0, time.Until(p.deadline))}
	_, err = o.runSlot(ctx, p.w, at, progress)
	p.Run.before = o.before
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, p.failed(name, size, err)
	}
	outcome, why, err := p.Judge(cell)
	if err != nil {
		return nil, p.failed(name, size, err)
	}
	p.cells = append(p.cells, cell)
	verdict := "meets every SLO"
	if outcome == search.Violated {
		verdict = "violates " + why
	}
	p.note(name, fmt.Sprintf("%d Services, repetition %d: %s", size, cell.Rep, verdict))
	if setting == (Setting{}) {
		p.search.Add(name, size, outcome, cell.Took())
	}
	return &cell, nil
}
