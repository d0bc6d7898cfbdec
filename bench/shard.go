package bench

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"synclab/scenarios"
)

// A run can be divided into shards, for several machines. What is divided are units: one repetition of one cell with all
// its subjects. They take turns on one machine, so what one of them needs beside another never mixes machines.

// Unit is one repetition of one cell.
type Unit struct {
	// Number in the order in which one run does them all, from 1.
	Number   int               `json:"number"`
	Services int               `json:"services"`
	Params   map[string]string `json:"params,omitempty"`
	Rep      int               `json:"rep"`
	Subjects []string          `json:"subjects"`
	// Guess of how long it takes; see guessPass.
	Guess time.Duration `json:"guess_ns"`

	cell   string // as Progress has it
	passes []pass
}

// Cell is the unit's size and swept values, for people.
func (u Unit) Cell() string { return u.cell }

// Shard says in run.json which part of a sweep a run is.
type Shard struct {
	Shard int `json:"shard"` // from 1
	Of    int `json:"of"`
	// Sweep is the digest of all units of all shards and of everything else that was asked for: only shards that have it in
	// common belong together.
	Sweep string `json:"sweep"`
	// Total is how many units all shards have together.
	Total int `json:"total"`
	// Host that the shard ran on: SYNCLAB_HOST, else the machine's name.
	Host  string `json:"host"`
	Units []Unit `json:"units"`
}

// String is how people name it: "3/40".
func (s Shard) String() string { return fmt.Sprintf("%d/%d", s.Shard, s.Of) }

// Guess of how long the shard takes.
func (s Shard) Guess() time.Duration {
	var total time.Duration
	for _, u := range s.Units {
		total += u.Guess
	}
	return total
}

// ErrShardComplete says that there was nothing to do: the shard's folder holds it already.
var ErrShardComplete = errors.New("the shard is complete already")

// Divide gives the shards of what o asks for, without running anything. o.Shards says how many; o.Shard has no meaning.
func Divide(o ExecuteOptions) ([]Shard, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	return o.divide()
}

func (o *ExecuteOptions) divide() ([]Shard, error) {
	if o.Live != nil {
		return nil, errors.New("a cluster that is followed cannot be divided into shards: each would meet another cluster")
	}
	cells, err := o.Scenario.Cells()
	if err != nil {
		return nil, err
	}
	all := o.units(cells)
	digest, err := o.sweepDigest(cells, all)
	if err != nil {
		return nil, err
	}
	shards := balanced(all, o.Shards)
	for i := range shards {
		shards[i].Sweep, shards[i].Total = digest, len(all)
	}
	return shards, nil
}

// units groups the passes of a run.
func (o *ExecuteOptions) units(cells []scenarios.Cell) []Unit {
	names := map[string]string{}
	for i, text := range o.Subjects {
		names[text] = o.parsed[i].Name
	}
	var all []Unit
	for i, p := range passes(cells, o.Subjects, o.Reps) {
		last := len(all) - 1
		if i == 0 || p.rep != all[last].Rep || p.number != all[last].passes[0].number {
			u := Unit{Number: len(all) + 1, Services: p.cell.Scenario.Shape.Services, Params: p.cell.Params, Rep: p.rep, cell: o.cellName(p.cell)}
			if o.Objects != nil {
				u.Services = len(o.Objects.Services)
			}
			all = append(all, u)
			last++
		}
		u := &all[last]
		u.passes = append(u.passes, p)
		u.Subjects = append(u.Subjects, names[p.subject])
		u.Guess += o.guessPass(p)
	}
	return all
}

// balanced divides units among n shards: the longest first, each to the shard that has the least to do so far. Shards do
// their units in the order of the sweep.
func balanced(all []Unit, n int) []Shard {
	shards := make([]Shard, n)
	for i := range shards {
		shards[i].Shard, shards[i].Of = i+1, n
	}
	longest := slices.Clone(all)
	slices.SortStableFunc(longest, func(a, b Unit) int { return cmp.Compare(b.Guess, a.Guess) })
	load := make([]time.Duration, n)
	for _, u := range longest {
		least := 0
		for i := range load {
			if load[i] < load[least] {
				least = i
			}
		}
		load[least] += u.Guess
		shards[least].Units = append(shards[least].Units, u)
	}
	for _, s := range shards {
		slices.SortFunc(s.Units, func(a, b Unit) int { return a.Number - b.Number })
	}
	return shards
}

// sweepDigest changes with everything that decides what the units measure and who does which. Machines and versions of
// tools are not in it: a fleet may have several.
func (o *ExecuteOptions) sweepDigest(cells []scenarios.Cell, all []Unit) (string, error) {
	text, err := json.Marshal(struct {
		Cells    []scenarios.Cell
		Units    []Unit
		Subjects []string // with the commands of exec subjects
		Asked    []any
	}{cells, all, o.Subjects, []any{o.Feed, o.Objects, o.ProxyConfig, o.ExecConfig, o.MaxMemory, o.KubeProxy.Version}})
	if err != nil {
		return "", fmt.Errorf("digest of the sweep: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), nil
}

// folder of the shard below the sweep's.
func (s Shard) folder(sweep string) string {
	return filepath.Join(sweep, fmt.Sprintf("shard-%0*d-of-%d", len(strconv.Itoa(s.Of)), s.Shard, s.Of))
}

// takeShard makes o a run of one shard, in its folder. What was begun there and did not end is replaced: a unit is short
// beside a sweep, and half a unit is of no use. With ErrShardComplete there is nothing to do.
func (o *ExecuteOptions) takeShard() (*Shard, error) {
	if o.Shard < 1 || o.Shard > o.Shards {
		return nil, fmt.Errorf("shard %d of %d: want 1 to %d", o.Shard, o.Shards, o.Shards)
	}
	shards, err := o.divide()
	if err != nil {
		return nil, err
	}
	shard := shards[o.Shard-1]
	shard.Host = hostName()
	if o.Out == "" {
		o.Out = filepath.Join("runs", o.Scenario.Name+"-"+shard.Sweep[:8])
	}
	if err := shard.beside(o.Out, o.Force); err != nil {
		return nil, err
	}
	o.Out = shard.folder(o.Out)
	run, err := readRun(o.Out)
	if err != nil || o.Force {
		return &shard, nil // whatever else is there, OpenRun names it
	}
	switch old := run.Shard; {
	case old == nil:
		return nil, fmt.Errorf("run folder %s: it holds a run that is no shard: choose another, or replace it with --force", o.Out)
	case old.Sweep != shard.Sweep || old.Shard != shard.Shard || old.Of != shard.Of:
		return nil, fmt.Errorf("run folder %s: it holds shard %s of another sweep (%s, this one is %s): choose another, or replace it with --force",
			o.Out, old, old.Sweep, shard.Sweep)
	case run.Status == StatusComplete:
		return &shard, ErrShardComplete
	}
	o.Force = true
	return &shard, nil
}

// beside says what keeps the shards that are in the sweep's folder already from making one sweep with s. Those of another
// sweep may be replaced one after the other, with force; those of another division have other folders and would stay.
func (s Shard) beside(sweep string, force bool) error {
	runs, err := filepath.Glob(filepath.Join(escapeGlob(sweep), "shard-*", runFile))
	if err != nil {
		return err
	}
	for _, file := range runs {
		dir := filepath.Dir(file)
		run, err := readRun(dir)
		switch old := run.Shard; {
		case err != nil || old == nil || dir == s.folder(sweep):
			// takeShard looks at the own folder; what is no shard is not ours to judge
		case old.Of != s.Of:
			return fmt.Errorf("folder %s: %s is of a division into %d shards, not %d, and no report could be made of both: choose another --out, or remove %s",
				sweep, dir, old.Of, s.Of, filepath.Join(sweep, fmt.Sprintf("shard-*-of-%d", old.Of)))
		case old.Sweep != s.Sweep && !force:
			return fmt.Errorf("folder %s: %s is a shard of another sweep (%s, this one is %s): choose another --out, or replace all its shards with --force",
				sweep, dir, old.Sweep, s.Sweep)
		}
	}
	return nil
}

// OneDivision says what keeps the shards in folders from being parts of one sweep where they are divided differently, and
// which of them to remove. What else may be wrong with them is no concern of it.
func OneDivision(folders []string) error {
	units := map[int]int{} // that are there, by the number of shards of a division
	folded := map[int][]string{}
	sweeps := map[string]bool{}
	for _, dir := range folders {
		run, err := readRun(dir)
		if err != nil || run.Shard == nil {
			continue
		}
		of := run.Shard.Of
		sweeps[run.Shard.Sweep] = true
		folded[of] = append(folded[of], dir)
		if run.Status == StatusComplete {
			units[of] += len(run.Shard.Units)
		}
	}
	if len(folded) < 2 || len(sweeps) > 1 {
		return nil
	}
	divisions := slices.Sorted(maps.Keys(folded))
	kept := slices.MaxFunc(divisions, func(a, b int) int { return cmp.Compare(units[a], units[b]) })
	var parts, remove []string
	for _, of := range divisions {
		parts = append(parts, fmt.Sprintf("%d of a division into %d", len(folded[of]), of))
		if of != kept {
			remove = append(remove, folded[of]...)
		}
	}
	return fmt.Errorf("the shards of one sweep are divided differently, %s: keep one division; the one into %d has most of what was measured, so remove %s",
		strings.Join(parts, ", "), kept, strings.Join(remove, " "))
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		name = "unknown"
	}
	return cmp.Or(os.Getenv("SYNCLAB_HOST"), name)
}

// guessPass says roughly how long a pass takes, from the scenario alone, so that every machine divides a sweep in the same
// way; the digest has it in it, so that a lab that guesses otherwise makes shards of another sweep. It may be wrong by some
// times, which is enough to keep the longest units apart from one another.
func (o *ExecuteOptions) guessPass(p pass) time.Duration {
	s := p.cell.Scenario
	services, endpoints := int64(s.Shape.Services), int64(s.Shape.Endpoints.Mean())
	if o.Objects != nil {
		n, mean := sizeOf(o.Objects)
		services, endpoints = int64(n), int64(mean)
	}
	full, partial := guessSyncs(p.subject, services, endpoints)
	total := 2 * time.Second // processes, namespaces
	limit := time.Duration(0)
	for _, step := range s.Steps {
		total += guessStep(step, full, partial, endpoints)
		if step.Settle != nil {
			limit = max(limit, step.Settle.Timeout)
		}
	}
	if limit > 0 {
		total = min(total, 2*limit) // what takes longer is stopped
	}
	return total.Round(time.Millisecond)
}

// guessSyncs is what a full and a partial sync take, from what was seen on one machine of two CPUs.
func guessSyncs(subject string, services, endpoints int64) (full, partial time.Duration) {
	const most = 200_000 // beyond, products would not fit
	chains := min(services*(1+endpoints), most)
	linear := time.Duration(chains) * 50 * time.Microsecond
	switch {
	case subject == "kube-proxy/iptables-nft": // the tool compares names: 5 s with 11,000 chains, 47 s with 22,000
		return linear + time.Duration(chains*chains*chains*44/10_000_000)*time.Microsecond, linear/10 + 100*time.Millisecond
	case subject == "kube-proxy/nftables": // 27 s with 10,000 Services, 5 s with 5,000
		square := time.Duration(min(services, most)*min(services, most)*267/1000) * time.Microsecond
		return linear + square, linear + square/4
	case strings.HasPrefix(subject, Synclab+"/nftables"), strings.Contains(subject, "tree"), strings.Contains(subject, "direct"):
		return linear / 5, linear / 50
	}
	return linear, linear / 5
}

func guessStep(step scenarios.Step, full, partial time.Duration, endpoints int64) time.Duration {
	seconds := func(n, rate float64) time.Duration {
		if rate <= 0 {
			return 0
		}
		return time.Duration(n/rate*1000) * time.Millisecond
	}
	switch {
	case step.Create != nil:
		return full + full/2 + seconds(float64(step.Create.Services), step.Create.Rate)
	case step.Churn != nil:
		return seconds(float64(step.Churn.Events), step.Churn.Rate) + partial
	case step.Rollout != nil && step.Rollout.Surge > 0:
		return time.Duration(1/step.Rollout.Surge+1)*step.Rollout.Interval + partial
	case step.Scale != nil:
		return seconds(float64(max(int64(step.Scale.To)-endpoints, endpoints-int64(step.Scale.To))), step.Scale.Rate) + partial
	case step.Restart != nil:
		return full
	case step.Fault != nil:
		return step.Fault.For + full + 10*time.Second
	case step.Probe != nil:
		return time.Duration(step.Probe.Positions*step.Probe.Samples) * 200 * time.Microsecond
	case step.Traffic != nil:
		return step.Traffic.For + time.Second
	case step.Check != nil:
		return full
	}
	return partial + time.Second // nodeLoss, settle
}

func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
