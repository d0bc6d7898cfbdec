package reports

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"synclab/bench/raw"
	"synclab/reports/doc"
)

// A sweep divided among machines becomes one run again. It has the records of all shards, in the order in which one run
// would have written them. Each repetition of a cell is in one shard, and so on one machine.

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

// machine describes the shard's machine in one line, without its name.
func (h ShardHead) machine() string {
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

// loadRuns reads run folders, folders of shards, and single shards. All shards that are named one by one belong to one
// run, in any folder. A folder of shards is a separate run, so that two sweeps can be compared.
func loadRuns(dirs []string) ([]*loadedRun, error) {
	var runs []*loadedRun
	var shards []*loadedRun
	at := -1
	for _, dir := range dirs {
		l, err := loadRun(dir)
		if err != nil {
			return nil, err
		}
		if l.run.Shard == nil {
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
func loadShards(dir string, shards []string) (*loadedRun, error) {
	var all []*loadedRun
	for _, folder := range shards {
		l, err := loadFolder(folder)
		if err != nil {
			return nil, err
		}
		if l.run.Shard == nil {
			return nil, fmt.Errorf("%s: the folder has the name of a shard, but its run.json describes no shard", folder)
		}
		all = append(all, l)
	}
	merged, err := mergeShards(all, filepath.Base(dir))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	merged.dir = dir
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
// shards.
func OutFolder(dirs []string) string {
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
func sweepName(shards []*loadedRun) string {
	first := shards[0]
	if parent := filepath.Base(filepath.Dir(filepath.Clean(first.dir))); parent != "." && parent != string(filepath.Separator) {
		return parent
	}
	return first.run.Scenario.Name + "-" + first.run.Shard.Sweep
}

// mergeShards makes one run of shards of one sweep.
func mergeShards(shards []*loadedRun, name string) (*loadedRun, error) {
	slices.SortStableFunc(shards, func(a, b *loadedRun) int { return a.run.Shard.Shard - b.run.Shard.Shard })
	if err := oneSweep(shards); err != nil {
		return nil, err
	}
	first := shards[0]
	m := &loadedRun{dir: first.dir, run: first.run, shards: shards, mixed: map[cellID]bool{}}
	m.run.ID, m.run.Shard = name, nil
	hosts := map[cellID]string{}
	for _, l := range shards {
		m.take(l, hosts)
	}
	slices.SortStableFunc(m.records, m.inOrder())
	m.missing = missingShards(shards)
	m.judge()
	return m, nil
}

// take adds the records and properties of one shard.
func (m *loadedRun) take(l *loadedRun, hosts map[cellID]string) {
	shard := l.run.Shard
	l.run.ID = m.run.ID // bench.txt has the name that one run would have
	m.records = append(m.records, l.records...)
	for _, w := range l.warnings {
		m.warnings = append(m.warnings, "shard "+shard.String()+": "+w)
	}
	for _, r := range l.records {
		id := Cell{r.Scenario, r.Services, r.Endpoints, r.Params}.id()
		if host, ok := hosts[id]; ok && host != shard.Host {
			m.mixed[id] = true
		}
		hosts[id] = shard.Host
	}
	if l.run.Started.Before(m.run.Started) {
		m.run.Started = l.run.Started
	}
	if l.run.Finished != nil && (m.run.Finished == nil || l.run.Finished.After(*m.run.Finished)) {
		m.run.Finished = l.run.Finished
	}
	if l.run.Machine != m.run.Machine {
		m.run.Machine = raw.Machine{} // no common machine; each shard names its own
	}
	if l.run.Versions != m.run.Versions {
		m.run.Versions = sameVersions(m.run.Versions, l.run.Versions)
	}
}

// sameVersions keeps the versions that two machines have in common.
func sameVersions(a, b raw.Versions) raw.Versions {
	for _, v := range []struct {
		own   *string
		other string
	}{
		{&a.Synclab, b.Synclab}, {&a.Go, b.Go}, {&a.Kernel, b.Kernel}, {&a.IPTablesLegacy, b.IPTablesLegacy},
		{&a.IPTablesNft, b.IPTablesNft}, {&a.Nft, b.Nft}, {&a.KubeProxy, b.KubeProxy},
	} {
		if *v.own != v.other {
			*v.own = ""
		}
	}
	return a
}

// inOrder compares records by their units.
func (m *loadedRun) inOrder() func(a, b raw.Record) int {
	numbers := map[string]int{}
	key := func(services, rep int, params map[string]string) string {
		parts := []string{strconv.Itoa(services), strconv.Itoa(rep)}
		for _, field := range slices.Sorted(maps.Keys(params)) {
			parts = append(parts, field+"="+params[field])
		}
		return strings.Join(parts, " ")
	}
	for _, l := range m.shards {
		for _, u := range l.run.Shard.Units {
			numbers[key(u.Services, u.Rep, u.Params)] = u.Number
		}
	}
	number := func(r raw.Record) int { return numbers[key(r.Services, r.Rep, r.Params)] }
	return func(a, b raw.Record) int { return number(a) - number(b) }
}

// oneSweep returns an error if the shards are not parts of one sweep.
func oneSweep(shards []*loadedRun) error {
	first := shards[0].run
	units := map[int]*loadedRun{}
	for i, l := range shards {
		own := l.run.Shard
		switch {
		case own.Sweep != first.Shard.Sweep:
			return fmt.Errorf("%s and %s are shards of different sweeps (%s): to compare the sweeps, name their folders",
				shards[0].dir, l.dir, difference(first, l.run))
		case own.Of != first.Shard.Of:
			return fmt.Errorf("%s and %s divide one sweep differently: shard %s and shard %s", shards[0].dir, l.dir, first.Shard, own)
		case i > 0 && own.Shard == shards[i-1].run.Shard.Shard:
			return fmt.Errorf("shard %s exists twice: %s and %s", own, shards[i-1].dir, l.dir)
		}
		for _, u := range own.Units {
			if other := units[u.Number]; other != nil {
				return fmt.Errorf("%s and %s both have unit %d, repetition %d at %s Services", other.dir, l.dir, u.Number, u.Rep, doc.Grouped(int64(u.Services)))
			}
			units[u.Number] = l
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

func missingShards(shards []*loadedRun) []int {
	var missing []int
	for i := 1; i <= shards[0].run.Shard.Of; i++ {
		if !slices.ContainsFunc(shards, func(l *loadedRun) bool { return l.run.Shard.Shard == i }) {
			missing = append(missing, i)
		}
	}
	return missing
}

// judge sets the run's status from its shards and warns if several machines measured it.
func (m *loadedRun) judge() {
	var reasons []string
	if len(m.missing) > 0 {
		reasons = append(reasons, m.missingText())
	}
	m.run.Status, m.run.Reason = raw.StatusComplete, ""
	hosts := map[string]bool{}
	kinds := map[string]bool{}
	for _, h := range m.shardHeads() {
		if h.Status != raw.StatusComplete {
			reasons = append(reasons, fmt.Sprintf("shard %d/%d is %s", h.Shard, h.Of, cmp.Or(h.Status, "of unknown status")))
		}
		if h.Units > 0 {
			hosts[h.Host], kinds[h.machine()] = true, true
		}
	}
	if len(reasons) > 0 {
		m.run.Status, m.run.Reason = "partial", strings.Join(reasons, "; ")
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
	m.warnings = append(m.warnings, text+": "+mixed+"; ratios between subjects are taken repetition by repetition, each within one machine")
}

// warnOfPrograms warns of several versions of the measured programs. Tools and kernels may differ in a fleet.
func (m *loadedRun) warnOfPrograms() {
	for _, program := range []struct {
		name string
		of   func(raw.Versions) string
	}{
		{"synclab", func(v raw.Versions) string { return v.Synclab }},
		{"kube-proxy", func(v raw.Versions) string { return v.KubeProxy }},
	} {
		var versions []string
		for _, h := range m.shardHeads() {
			if h.Units > 0 {
				versions = append(versions, cmp.Or(program.of(h.Versions), "none"))
			}
		}
		if versions = distinct(versions); len(versions) > 1 {
			m.warnings = append(m.warnings, fmt.Sprintf("its shards measured several versions of %s: %s", program.name, doc.JoinWords(versions)))
		}
	}
}

// missingText names the missing shards: "shards 2, 5 of 40 are missing".
func (m *loadedRun) missingText() string {
	if len(m.missing) == 0 {
		return ""
	}
	var names []string
	for _, i := range m.missing {
		names = append(names, strconv.Itoa(i))
	}
	of, have := m.shards[0].run.Shard, 0
	for _, l := range m.shards {
		have += len(l.run.Shard.Units)
	}
	word, is := "shard", "is"
	if len(names) > 1 {
		word, is = "shards", "are"
	}
	return fmt.Sprintf("%s %s of %d %s missing, %d of %d repetitions of cells are present", word, strings.Join(names, ", "), of.Of, is, have, of.Total)
}

func (m *loadedRun) shardHeads() []ShardHead {
	var heads []ShardHead
	for _, l := range m.shards {
		s := l.run.Shard
		heads = append(heads, ShardHead{Shard: s.Shard, Of: s.Of, Dir: filepath.Base(l.dir), Status: l.run.Status, Units: len(s.Units),
			Host: s.Host, Versions: l.run.Versions, Machine: l.run.Machine})
	}
	return heads
}

// mixes reports whether several machines measured a cell's repetitions.
func (c *collection) mixes(cell Cell) bool {
	return slices.ContainsFunc(c.runs, func(l *loadedRun) bool { return l.mixed[cell.id()] })
}
