package raw

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Unit is one repetition of one cell with all its subjects. They take turns on one machine, so that no comparison mixes
// machines.
type Unit struct {
	// Number in the order in which a single run does all units, from 1.
	Number   int               `json:"number"`
	Services int               `json:"services"`
	Params   map[string]string `json:"params,omitempty"`
	Rep      int               `json:"rep"`
	Subjects []string          `json:"subjects"`
}

// Cell returns the unit's size and swept values, such as "services=1000 proxy.minSyncPeriod=1s".
func (u Unit) Cell() string {
	parts := []string{fmt.Sprintf("services=%d", u.Services)}
	for _, axis := range slices.Sorted(maps.Keys(u.Params)) {
		if axis != "shape.services" {
			parts = append(parts, axis+"="+u.Params[axis])
		}
	}
	return strings.Join(parts, " ")
}

// Shard is the part of a sweep that one machine does, as in run.json.
type Shard struct {
	Shard int `json:"shard"` // from 1
	Of    int `json:"of"`
	// Sweep is the digest of all units of all shards and of all other options. Only shards with the same digest belong
	// together.
	Sweep string `json:"sweep"`
	// Total is the number of units in all shards.
	Total int `json:"total"`
	// Host that ran the shard: SYNCLAB_HOST, else the machine's name.
	Host  string `json:"host"`
	Units []Unit `json:"units"`
}

// String returns the short form "3/40".
func (s Shard) String() string { return fmt.Sprintf("%d/%d", s.Shard, s.Of) }

// OneDivision returns an error if the shards in folders come from different divisions of one sweep. The error names the
// folders to remove. It checks nothing else.
func OneDivision(folders []string) error {
	units := map[int]int{} // complete units, by the number of shards of a division
	folded := map[int][]string{}
	sweeps := map[string]bool{}
	for _, dir := range folders {
		run, err := ReadRunFile(dir)
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
	return fmt.Errorf("the shards of one sweep are divided differently, %s: keep one division; the one into %d has the most complete units, so remove %s",
		strings.Join(parts, ", "), kept, strings.Join(remove, " "))
}
