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

	"synclab/bench/outfile"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/scenarios"
)

// ErrShardComplete reports that the shard's folder already has the complete shard.
var ErrShardComplete = errors.New("the shard is complete already")

// Divide returns what one shard of a run would do, without running anything: o.Shard of o.Shards.
func Divide(o ExecuteOptions) (raw.Shard, error) {
	if err := o.fill(); err != nil {
		return raw.Shard{}, err
	}
	cells, _, err := o.cells()
	if err != nil {
		return raw.Shard{}, err
	}
	shard, _, err := o.divide(cells)
	return shard, err
}

// divide returns a shard and its passes, in the order of the sweep. Every machine computes the same division: the heaviest
// units first, each to the shard with the least weight so far.
func (o *ExecuteOptions) divide(cells []scenarios.Cell) (s raw.Shard, own []slot, err error) {
	switch {
	case o.Shard < 0 || o.Shard >= o.Shards:
		return s, nil, fmt.Errorf("shard %d of %d: want 0 to %d", o.Shard, o.Shards, o.Shards-1)
	case o.Live != nil && o.Shards > 1:
		return s, nil, errors.New("cannot shard a followed cluster: each shard would measure another cluster")
	}
	digest, err := o.sweepDigest(cells)
	if err != nil {
		return s, nil, err
	}
	all := unitsOf(slots(cells, o.Subjects, o.Reps, o.Scenario.Seed))
	host, _ := os.Hostname()
	s = raw.Shard{Shard: o.Shard, Of: o.Shards, Sweep: digest, Total: len(all), Host: cmp.Or(os.Getenv("SYNCLAB_HOST"), host, "unknown")}
	heaviest := make([]int, len(all)) // indices of units
	for i := range all {
		heaviest[i] = i
	}
	slices.SortStableFunc(heaviest, func(a, b int) int { return cmp.Compare(weight(all[b]), weight(all[a])) })
	load, shardOf := make([]int, o.Shards), make([]int, len(all))
	for _, i := range heaviest {
		shardOf[i] = slices.Index(load, slices.Min(load))
		load[shardOf[i]] += weight(all[i])
	}
	for i, unit := range all {
		if shardOf[i] == o.Shard {
			own = append(own, unit...)
			s.Units++
		}
	}
	return s, own, nil
}

// unitsOf divides the passes of a run: one repetition of one cell, with all its subjects, is a unit.
func unitsOf(all []slot) (found [][]slot) {
	for i, p := range all {
		if i == 0 || p.rep != all[i-1].rep || p.number != all[i-1].number {
			found = append(found, nil)
		}
		found[len(found)-1] = append(found[len(found)-1], p)
	}
	return found
}

// weight estimates the time of a unit, which grows with Services and subjects.
func weight(unit []slot) int { return max(1, unit[0].cell.Scenario.Shape.Services) * len(unit) }

// sweepDigest changes with everything that decides what the units measure. It excludes machines and tool versions: a fleet
// may have several.
func (o *ExecuteOptions) sweepDigest(cells []scenarios.Cell) (string, error) {
	subjects := slices.Clone(o.parsed)
	var configs []string
	for i, s := range subjects {
		configs = append(configs, o.own[s.Config].digest)
		subjects[i].Source, subjects[i].ConfigFile, subjects[i].ToolsRoot = "", "", "" // machines have them in different folders
	}
	text, err := json.Marshal(struct {
		Cells    []scenarios.Cell
		Subjects []subject.Spec
		Asked    []any
	}{cells, subjects, []any{o.Reps, o.Feed, o.Objects, o.ProxyConfig, o.ExecConfig, o.MaxMemory, o.KubeProxy.Version, configs}})
	if err != nil {
		return "", fmt.Errorf("digest of the sweep: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), nil
}

// shardFolder returns the folder of a shard below the sweep's.
func shardFolder(s raw.Shard, sweep string) string {
	return filepath.Join(sweep, fmt.Sprintf("shard-%d-of-%d", s.Shard, s.Of))
}

// besideOthers returns an error if a sweep's folder has a shard that no report can have together with this one. force allows
// those of another sweep, which may be older measurements of this one.
func besideOthers(shard raw.Shard, sweep string, force bool) error {
	entries, _ := os.ReadDir(sweep) // none yet
	for _, entry := range entries {
		dir := filepath.Join(sweep, entry.Name())
		run, err := raw.ReadRunFile(dir)
		if err != nil || run.Shard == nil || dir == shardFolder(shard, sweep) {
			continue
		}
		if other := run.Shard; other.Of != shard.Of || other.Sweep != shard.Sweep && !force {
			return fmt.Errorf("folder %s: it has shard %s of sweep %s, and no report can have it together with shard %s of sweep %s: choose another folder with --out, or remove it",
				dir, other, other.Sweep, shard, shard.Sweep)
		}
	}
	return nil
}

// takeShard makes o a run of one shard, in its folder, and returns its passes. An incomplete run there is replaced: a unit
// is short compared with a sweep, and half a unit is of no use. With ErrShardComplete there is nothing to do.
func (o *ExecuteOptions) takeShard(cells []scenarios.Cell) (*raw.Shard, []slot, error) {
	shard, own, err := o.divide(cells)
	if err != nil {
		return nil, nil, err
	}
	if o.Out == "" {
		o.Out = filepath.Join(raw.RunsFolder, outfile.Name(o.Scenario.Name)+"-"+shard.Sweep[:8])
	}
	if err := besideOthers(shard, o.Out, o.Force); err != nil {
		return nil, nil, err
	}
	o.Out = shardFolder(shard, o.Out)
	run, err := raw.ReadRunFile(o.Out)
	if err != nil || o.Force {
		return &shard, own, nil // OpenRun reports other content
	}
	switch old := run.Shard; {
	case old == nil:
		return nil, nil, fmt.Errorf("run folder %s: it has a run that is no shard: choose another folder, or replace the run with --force", o.Out)
	case old.Sweep != shard.Sweep || old.Shard != shard.Shard || old.Of != shard.Of:
		return nil, nil, fmt.Errorf("run folder %s: it has shard %s of another sweep (%s, this one is %s): choose another folder, or replace it with --force",
			o.Out, old, old.Sweep, shard.Sweep)
	case run.Status == raw.StatusComplete:
		return nil, nil, ErrShardComplete
	}
	o.Force = true
	return &shard, own, nil
}
