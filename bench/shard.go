package bench

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"synclab/bench/outfile"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/scenarios"
)

// ErrShardComplete reports that the shard's folder already has the complete shard.
var ErrShardComplete = errors.New("the shard is complete already")

// Divide returns the shards of a run, without running anything. o.Shards is their number; o.Shard is not used.
func Divide(o ExecuteOptions) ([]raw.Shard, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	return o.divide()
}

func (o *ExecuteOptions) divide() ([]raw.Shard, error) {
	if o.Live != nil {
		return nil, errors.New("cannot shard a followed cluster: each shard would measure another cluster")
	}
	cells, _, err := o.cells()
	if err != nil {
		return nil, err
	}
	all, _ := o.units(cells)
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

// units groups the passes of a run. byUnit has the passes of each unit by its number.
func (o *ExecuteOptions) units(cells []scenarios.Cell) (all []raw.Unit, byUnit map[int][]slot) {
	names := map[string]string{}
	for i, text := range o.Subjects {
		names[text] = o.parsed[i].Name
	}
	byUnit = map[int][]slot{}
	for _, p := range slots(cells, o.Subjects, o.Reps, o.Scenario.Seed) {
		last := byUnit[len(all)]
		if len(last) == 0 || p.rep != last[0].rep || p.number != last[0].number {
			u := raw.Unit{Number: len(all) + 1, Services: p.cell.Scenario.Shape.Services, Params: p.cell.Params, Rep: p.rep}
			if o.Objects != nil {
				u.Services = len(o.Objects.Services)
			}
			all = append(all, u)
		}
		u := &all[len(all)-1]
		byUnit[u.Number] = append(byUnit[u.Number], p)
		u.Subjects = append(u.Subjects, names[p.subject])
	}
	return all, byUnit
}

// unitWeight estimates the time of a unit, which grows with Services and subjects.
func unitWeight(u raw.Unit) int { return max(1, u.Services) * len(u.Subjects) }

// balanced divides units among n shards: the heaviest first, each to the shard with the least weight so far. Every
// machine computes the same division. A shard runs its units in the order of the sweep.
func balanced(all []raw.Unit, n int) []raw.Shard {
	shards := make([]raw.Shard, n)
	for i := range shards {
		shards[i].Shard, shards[i].Of = i+1, n
	}
	heaviest := slices.Clone(all)
	slices.SortStableFunc(heaviest, func(a, b raw.Unit) int { return cmp.Compare(unitWeight(b), unitWeight(a)) })
	load := make([]int, n)
	for _, u := range heaviest {
		least := slices.Index(load, slices.Min(load))
		load[least] += unitWeight(u)
		shards[least].Units = append(shards[least].Units, u)
	}
	for _, s := range shards {
		slices.SortFunc(s.Units, func(a, b raw.Unit) int { return a.Number - b.Number })
	}
	return shards
}

// sweepDigest changes with everything that decides what the units measure and how shards divide them. It excludes
// machines and tool versions: a fleet may have several.
func (o *ExecuteOptions) sweepDigest(cells []scenarios.Cell, all []raw.Unit) (string, error) {
	subjects := slices.Clone(o.parsed)
	var configs []string
	for i, s := range subjects {
		configs = append(configs, o.own[s.Config].digest)
		subjects[i].Source, subjects[i].ConfigFile, subjects[i].ToolsRoot = "", "", "" // machines have them in different folders
	}
	text, err := json.Marshal(struct {
		Cells    []scenarios.Cell
		Units    []raw.Unit
		Subjects []subject.Spec
		Asked    []any
	}{cells, all, subjects, []any{o.Feed, o.Objects, o.ProxyConfig, o.ExecConfig, o.MaxMemory, o.KubeProxy.Version, configs}})
	if err != nil {
		return "", fmt.Errorf("digest of the sweep: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), nil
}

// shardFolder returns the folder of a shard below the sweep's.
func shardFolder(s raw.Shard, sweep string) string {
	return filepath.Join(sweep, fmt.Sprintf("shard-%0*d-of-%d", len(strconv.Itoa(s.Of)), s.Shard, s.Of))
}

// takeShard makes o a run of one shard, in its folder. An incomplete run there is replaced: a unit is short compared
// with a sweep, and half a unit is of no use. With ErrShardComplete there is nothing to do.
func (o *ExecuteOptions) takeShard() (*raw.Shard, error) {
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
		o.Out = filepath.Join(raw.RunsFolder, outfile.Name(o.Scenario.Name)+"-"+shard.Sweep[:8])
	}
	if err := sameSweep(shard, o.Out, o.Force); err != nil {
		return nil, err
	}
	o.Out = shardFolder(shard, o.Out)
	run, err := raw.ReadRunFile(o.Out)
	if err != nil || o.Force {
		return &shard, nil // OpenRun reports other content
	}
	switch old := run.Shard; {
	case old == nil:
		return nil, fmt.Errorf("run folder %s: it has a run that is no shard: choose another folder, or replace the run with --force", o.Out)
	case old.Sweep != shard.Sweep || old.Shard != shard.Shard || old.Of != shard.Of:
		return nil, fmt.Errorf("run folder %s: it has shard %s of another sweep (%s, this one is %s): choose another folder, or replace it with --force",
			o.Out, old, old.Sweep, shard.Sweep)
	case run.Status == raw.StatusComplete:
		return &shard, ErrShardComplete
	}
	o.Force = true
	return &shard, nil
}

// sameSweep returns an error if the shards in the sweep's folder and s do not make one sweep. With force, shards of
// another sweep are replaced one by one. Shards of another division have other folders, and would stay.
func sameSweep(s raw.Shard, sweep string, force bool) error {
	runs, err := filepath.Glob(filepath.Join(escapeGlob(sweep), "shard-*", raw.RunFile))
	if err != nil {
		return err
	}
	for _, file := range runs {
		dir := filepath.Dir(file)
		run, err := raw.ReadRunFile(dir)
		switch old := run.Shard; {
		case err != nil || old == nil || dir == shardFolder(s, sweep):
			// takeShard checks the folder of s; folders that are no shard are ignored
		case old.Of != s.Of:
			return fmt.Errorf("folder %s: %s is part of a division into %d shards, not %d, and one report cannot have both: choose another --out, or remove %s",
				sweep, dir, old.Of, s.Of, filepath.Join(sweep, fmt.Sprintf("shard-*-of-%d", old.Of)))
		case old.Sweep != s.Sweep && !force:
			return fmt.Errorf("folder %s: %s is a shard of another sweep (%s, this one is %s): choose another --out, or replace all its shards with --force",
				sweep, dir, old.Sweep, s.Sweep)
		}
	}
	return nil
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		name = "unknown"
	}
	return cmp.Or(os.Getenv("SYNCLAB_HOST"), name)
}

func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
