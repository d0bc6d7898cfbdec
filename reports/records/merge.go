package records

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"synclab/bench/outfile"
	"synclab/bench/raw"
	"synclab/reports/doc"
)

// A sweep divided among machines becomes one run again. It has the records of all shards, by size and repetition. Each
// repetition of a cell is in one shard, and so on one machine.

// ShardHead describes one shard of a run for the report.
type ShardHead struct {
	Shard    int          `json:"shard"`
	Of       int          `json:"of"`
	Dir      string       `json:"dir"` // the folder's name
	Status   string       `json:"status"`
	Units    int          `json:"units"` // repetitions of cells
	Host     string       `json:"host"`
	Versions raw.Versions `json:"versions"`
	Machine  raw.Machine  `json:"machine"`
}

// MachineText describes the shard's machine in one line, without its name.
func (h ShardHead) MachineText() string {
	parts := []string{fmt.Sprintf("%s × %d", h.Machine.CPU, h.Machine.CPUs)}
	if h.Machine.MemoryBytes > 0 {
		parts = append(parts, doc.Format(float64(h.Machine.MemoryBytes), "B"))
	}
	for _, v := range []string{h.Machine.OS, "kernel " + h.Versions.Kernel, h.Versions.IPTablesLegacy, h.Versions.Nft} {
		if v != "" {
			parts = append(parts, v)
		}
	}
	return strings.Join(parts, ", ")
}

// LoadAll reads run folders, folders of shards, and single shards. All shards that are named one by one belong to one
// run, in any folder. A folder of shards is a separate run, so that two sweeps can be compared.
func LoadAll(dirs []string) ([]*Run, error) {
	var runs []*Run
	var shards []*Run
	at := -1
	for _, dir := range dirs {
		l, err := Load(dir)
		if err != nil {
			return nil, err
		}
		if l.Info.Shard == nil {
			runs = append(runs, l)
			continue
		}
		if at < 0 {
			at = len(runs)
		}
		shards = append(shards, l)
	}
	if at < 0 {
		return runs, nil
	}
	merged, err := mergeShards(shards, sweepName(shards))
	if err != nil {
		return nil, err
	}
	return slices.Insert(runs, at, merged), nil
}

// loadShards reads the shards in a folder as one run.
func loadShards(dir string, shards []string) (*Run, error) {
	var all []*Run
	for _, folder := range shards {
		l, err := loadFolder(folder)
		if err != nil {
			return nil, err
		}
		if l.Info.Shard == nil {
			return nil, fmt.Errorf("%s: the folder has the name of a shard, but its run.json describes no shard", folder)
		}
		all = append(all, l)
	}
	merged, err := mergeShards(all, filepath.Base(dir))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	merged.Dir = dir
	return merged, nil
}

// ShardsIn lists the shard folders in a folder that is not a run itself, in order. A folder without any is not a sweep.
func ShardsIn(dir string) []string {
	if _, err := os.Stat(filepath.Join(dir, "run.json")); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var found []string
	for _, entry := range entries {
		folder := filepath.Join(dir, entry.Name())
		if _, err := os.Stat(filepath.Join(folder, "run.json")); err == nil && strings.HasPrefix(entry.Name(), "shard-") {
			found = append(found, folder)
		}
	}
	return found
}

// OutFolder is the default folder for the report on some folders: the first of them, or the common parent folder of
// shards. If it belongs to another user, it is a folder in the current one.
func OutFolder(dirs []string) (string, error) {
	return outfile.OwnFolder(commonFolder(dirs), "synclab-report")
}

func commonFolder(dirs []string) string {
	parents := map[string]bool{}
	for _, dir := range dirs {
		if !strings.HasPrefix(filepath.Base(dir), "shard-") {
			return dirs[0]
		}
		parents[filepath.Dir(filepath.Clean(dir))] = true
	}
	if len(dirs) > 1 && len(parents) == 1 {
		return filepath.Dir(filepath.Clean(dirs[0]))
	}
	return dirs[0]
}

// sweepName is the name of a sweep whose shards were named one by one.
func sweepName(shards []*Run) string {
	first := shards[0]
	if parent := filepath.Base(filepath.Dir(filepath.Clean(first.Dir))); parent != "." && parent != string(filepath.Separator) {
		return parent
	}
	return first.Info.Scenario.Name + "-" + first.Info.Shard.Sweep
}

// mergeShards makes one run of shards of one sweep.
func mergeShards(shards []*Run, name string) (*Run, error) {
	slices.SortStableFunc(shards, func(a, b *Run) int { return a.Info.Shard.Shard - b.Info.Shard.Shard })
	if err := oneSweep(shards); err != nil {
		return nil, err
	}
	first := shards[0]
	m := &Run{Dir: first.Dir, Info: first.Info, Shards: shards, mixed: map[cellID]bool{}}
	m.Info.ID, m.Info.Shard = name, nil
	hosts := map[cellID]string{}
	for _, l := range shards {
		m.take(l, hosts)
	}
	slices.SortStableFunc(m.Records, func(a, b raw.Record) int { return cmp.Or(a.Services-b.Services, a.Rep-b.Rep) })
	m.Missing = missingShards(shards)
	m.judge()
	return m, nil
}

// take adds the records and properties of one shard.
func (m *Run) take(l *Run, hosts map[cellID]string) {
	shard := l.Info.Shard
	l.Info.ID = m.Info.ID // bench.txt has the name that one run would have
	m.Records = append(m.Records, l.Records...)
	for _, w := range l.Warnings {
		m.Warnings = append(m.Warnings, "shard "+shard.String()+": "+w)
	}
	for _, r := range l.Records {
		id := Cell{r.Scenario, r.Services, r.Endpoints, r.Params}.ID()
		if host, ok := hosts[id]; ok && host != shard.Host {
			m.mixed[id] = true
		}
		hosts[id] = shard.Host
	}
	if l.Info.Started.Before(m.Info.Started) {
		m.Info.Started = l.Info.Started
	}
	if l.Info.Finished != nil && (m.Info.Finished == nil || l.Info.Finished.After(*m.Info.Finished)) {
		m.Info.Finished = l.Info.Finished
	}
	if l.Info.Machine != m.Info.Machine {
		m.Info.Machine = raw.Machine{} // no common machine; each shard names its own
	}
	if l.Info.Versions != m.Info.Versions {
		m.Info.Versions = sameVersions(m.Info.Versions, l.Info.Versions)
	}
}

// sameVersions keeps the versions that two machines have in common.
func sameVersions(a, b raw.Versions) raw.Versions {
	own, other := reflect.ValueOf(&a).Elem(), reflect.ValueOf(b)
	for i := range own.NumField() {
		if !own.Field(i).Equal(other.Field(i)) {
			own.Field(i).SetZero()
		}
	}
	return a
}

// oneSweep returns an error if the shards are not parts of one sweep.
func oneSweep(shards []*Run) error {
	first := shards[0].Info
	for i, l := range shards {
		own := l.Info.Shard
		switch {
		case own.Sweep != first.Shard.Sweep:
			return fmt.Errorf("%s and %s are shards of different sweeps (%s): to compare the sweeps, name their folders",
				shards[0].Dir, l.Dir, difference(first, l.Info))
		case own.Of != first.Shard.Of:
			return fmt.Errorf("%s and %s divide one sweep differently: shard %s and shard %s", shards[0].Dir, l.Dir, first.Shard, own)
		case i > 0 && own.Shard == shards[i-1].Info.Shard.Shard:
			return fmt.Errorf("shard %s exists twice: %s and %s", own, shards[i-1].Dir, l.Dir)
		}
	}
	return nil
}

// difference describes how two sweeps differ, as far as run.json shows.
func difference(a, b raw.Run) string {
	switch {
	case a.Scenario.Name != b.Scenario.Name:
		return "scenarios " + a.Scenario.Name + " and " + b.Scenario.Name
	case !slices.Equal(a.Subjects, b.Subjects):
		return "subjects " + strings.Join(a.Subjects, ", ") + " and " + strings.Join(b.Subjects, ", ")
	case a.Seed != b.Seed:
		return fmt.Sprintf("seeds %d and %d", a.Seed, b.Seed)
	case a.Reps != b.Reps:
		return fmt.Sprintf("%d and %d repetitions", a.Reps, b.Reps)
	case a.Feed != b.Feed:
		return "feeds " + a.Feed + " and " + b.Feed
	}
	return "digests " + a.Shard.Sweep + " and " + b.Shard.Sweep + ": sizes, settings or objects"
}

func missingShards(shards []*Run) []int {
	var missing []int
	for i := range shards[0].Info.Shard.Of {
		if !slices.ContainsFunc(shards, func(l *Run) bool { return l.Info.Shard.Shard == i }) {
			missing = append(missing, i)
		}
	}
	return missing
}

// judge sets the run's status from its shards and warns if several machines measured it.
func (m *Run) judge() {
	var reasons []string
	if len(m.Missing) > 0 {
		reasons = append(reasons, m.MissingText())
	}
	m.Info.Status, m.Info.Reason = raw.StatusComplete, ""
	hosts := map[string]bool{}
	kinds := map[string]bool{}
	for _, h := range m.ShardHeads() {
		if h.Status != raw.StatusComplete {
			reasons = append(reasons, fmt.Sprintf("shard %d/%d is %s", h.Shard, h.Of, cmp.Or(h.Status, "of unknown status")))
		}
		if h.Units > 0 {
			hosts[h.Host], kinds[h.MachineText()] = true, true
		}
	}
	if len(reasons) > 0 {
		m.Info.Status, m.Info.Reason = "partial", strings.Join(reasons, "; ")
	}
	m.warnOfPrograms()
	if len(hosts) < 2 {
		return
	}
	text := fmt.Sprintf("its shards were measured on %d machines", len(hosts))
	if len(kinds) > 1 {
		text += fmt.Sprintf(" of %d kinds", len(kinds))
	}
	mixed := "growth over sizes mixes the machines"
	if len(m.mixed) > 0 {
		mixed = fmt.Sprintf("medians of %s mix the machines, and so does growth over sizes", doc.Plural(len(m.mixed), "cell"))
	}
	m.Warnings = append(m.Warnings, text+": "+mixed+"; ratios between subjects are taken repetition by repetition, each within one machine")
}

// warnOfPrograms warns of several versions of the measured programs. Tools and kernels may differ in a fleet.
func (m *Run) warnOfPrograms() {
	for _, program := range RunParts {
		var versions []string
		for _, l := range m.Shards {
			if program.Compared && l.Info.Shard.Units > 0 {
				versions = append(versions, cmp.Or(program.Of(l.Info), "none"))
			}
		}
		if versions = Distinct(versions); len(versions) > 1 {
			m.Warnings = append(m.Warnings, fmt.Sprintf("its shards measured several versions of %s: %s", program.What, doc.JoinWords(versions)))
		}
	}
}

// MissingText names the missing shards: "shards 2, 5 of 40 are missing".
func (m *Run) MissingText() string {
	if len(m.Missing) == 0 {
		return ""
	}
	var names []string
	for _, i := range m.Missing {
		names = append(names, strconv.Itoa(i))
	}
	of, have := m.Shards[0].Info.Shard, 0
	for _, l := range m.Shards {
		have += l.Info.Shard.Units
	}
	word, is := "shard", "is"
	if len(names) > 1 {
		word, is = "shards", "are"
	}
	return fmt.Sprintf("%s %s of %d %s missing, %d of %d repetitions of cells are present", word, strings.Join(names, ", "), of.Of, is, have, of.Total)
}

func (m *Run) ShardHeads() []ShardHead {
	var heads []ShardHead
	for _, l := range m.Shards {
		s := l.Info.Shard
		heads = append(heads, ShardHead{Shard: s.Shard, Of: s.Of, Dir: filepath.Base(l.Dir), Status: l.Info.Status, Units: s.Units,
			Host: s.Host, Versions: l.Info.Versions, Machine: l.Info.Machine})
	}
	return heads
}

// Mixes reports whether several machines measured a cell's repetitions.
func (c *Collection) Mixes(cell Cell) bool {
	return slices.ContainsFunc(c.Runs, func(l *Run) bool { return l.mixed[cell.ID()] })
}
