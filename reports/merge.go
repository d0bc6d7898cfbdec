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

	"synclab/bench"
)

// A sweep that was divided among machines comes back as one run: its records are those of the shards, in the order in
// which one run would have written them. A repetition of a cell is of one shard, and so of one machine.

// ShardHead is what a reader needs to know of one shard of a run.
type ShardHead struct {
	Shard    int            `json:"shard"`
	Of       int            `json:"of"`
	Dir      string         `json:"dir"` // the folder's name
	Status   string         `json:"status"`
	Units    int            `json:"units"` // repetitions of cells
	Host     string         `json:"host"`
	Versions bench.Versions `json:"versions"`
	Machine  bench.Machine  `json:"machine"`
}

// machine says in one line what the shard ran on, without its name.
func (h ShardHead) machine() string {
	parts := []string{fmt.Sprintf("%s × %d", h.Machine.CPU, h.Machine.CPUs)}
	if h.Machine.MemoryBytes > 0 {
		parts = append(parts, formatBytes(float64(h.Machine.MemoryBytes)))
	}
	for _, v := range []string{h.Machine.OS, "kernel " + h.Versions.Kernel, h.Versions.IPTablesLegacy, h.Versions.Nft} {
		if v != "" {
			parts = append(parts, v)
		}
	}
	return strings.Join(parts, ", ")
}

// loadRuns reads what folders name: runs, folders of shards, and shards. Shards that are named themselves, wherever they
// lie, are of one run; a folder of shards is a run of its own, so that two sweeps can stand side by side.
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
			return nil, fmt.Errorf("%s: its name says shard, its run.json does not", folder)
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

// ShardsIn are the folders of shards in a folder that is no run itself, in order; none: it holds no sweep.
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

// OutFolder is where the report of some folders goes when nobody says: the first one, or, of shards, the folder that
// they have in common.
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

// sweepName of shards that were named one by one.
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

// take adds what one shard has.
func (m *loadedRun) take(l *loadedRun, hosts map[cellID]string) {
	shard := l.run.Shard
	l.run.ID = m.run.ID // in bench.txt, what one run would be called
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
		m.run.Machine = bench.Machine{} // of none; the shards say it
	}
	if l.run.Versions != m.run.Versions {
		m.run.Versions = sameVersions(m.run.Versions, l.run.Versions)
	}
}

// sameVersions keeps what two machines have in common.
func sameVersions(a, b bench.Versions) bench.Versions {
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
func (m *loadedRun) inOrder() func(a, b bench.Record) int {
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
	number := func(r bench.Record) int { return numbers[key(r.Services, r.Rep, r.Params)] }
	return func(a, b bench.Record) int { return number(a) - number(b) }
}

// oneSweep says what keeps shards from being parts of one sweep.
func oneSweep(shards []*loadedRun) error {
	first := shards[0].run
	units := map[int]*loadedRun{}
	for i, l := range shards {
		own := l.run.Shard
		switch {
		case own.Sweep != first.Shard.Sweep:
			return fmt.Errorf("%s and %s are shards of different sweeps (%s): name the folders of the sweeps to set them side by side",
				shards[0].dir, l.dir, difference(first, l.run))
		case own.Of != first.Shard.Of:
			return fmt.Errorf("%s and %s are of one sweep, divided differently: shard %s and shard %s", shards[0].dir, l.dir, first.Shard, own)
		case i > 0 && own.Shard == shards[i-1].run.Shard.Shard:
			return fmt.Errorf("shard %s is there twice: %s and %s", own, shards[i-1].dir, l.dir)
		}
		for _, u := range own.Units {
			if other := units[u.Number]; other != nil {
				return fmt.Errorf("%s and %s both hold unit %d, repetition %d at %s Services", other.dir, l.dir, u.Number, u.Rep, Grouped(int64(u.Services)))
			}
			units[u.Number] = l
		}
	}
	return nil
}

// difference says what two sweeps differ in, as far as run.json tells.
func difference(a, b bench.Run) string {
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

// judge gives the run the status that its shards leave it, and says on how many machines it was measured.
func (m *loadedRun) judge() {
	var reasons []string
	if len(m.missing) > 0 {
		reasons = append(reasons, m.missingText())
	}
	m.run.Status, m.run.Reason = bench.StatusComplete, ""
	hosts := map[string]bool{}
	kinds := map[string]bool{}
	for _, h := range m.shardHeads() {
		if h.Status != bench.StatusComplete {
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
	mixed := "what grows with the size mixes them"
	if len(m.mixed) > 0 {
		mixed = fmt.Sprintf("medians of %s mix them, and so does what grows with the size", plural(len(m.mixed), "cell"))
	}
	m.warnings = append(m.warnings, text+": "+mixed+"; ratios between subjects are taken repetition by repetition, each within one machine")
}

// warnOfPrograms: tools and kernels may be several in a fleet, but what is measured should be the same everywhere.
func (m *loadedRun) warnOfPrograms() {
	for _, program := range []struct {
		name string
		of   func(bench.Versions) string
	}{
		{"synclab", func(v bench.Versions) string { return v.Synclab }},
		{"kube-proxy", func(v bench.Versions) string { return v.KubeProxy }},
	} {
		var versions []string
		for _, h := range m.shardHeads() {
			if h.Units > 0 {
				versions = append(versions, cmp.Or(program.of(h.Versions), "none"))
			}
		}
		if versions = distinct(versions); len(versions) > 1 {
			m.warnings = append(m.warnings, fmt.Sprintf("its shards are of several versions of %s: %s", program.name, joinWords(versions)))
		}
	}
}

// missingText names the shards that are not there: "shards 2, 5 of 40 are missing".
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
	return fmt.Sprintf("%s %s of %d %s missing, %d of %d repetitions of cells are here", word, strings.Join(names, ", "), of.Of, is, have, of.Total)
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

// hostList is name and kind of each machine that shards ran on, with the shards that did.
func (r RunHead) hostList() [][2]string {
	type place struct{ host, machine string }
	shards := map[place][]string{}
	var order []place
	for _, h := range r.Shards {
		at := place{h.Host, h.machine()}
		if shards[at] == nil {
			order = append(order, at)
		}
		shards[at] = append(shards[at], strconv.Itoa(h.Shard))
	}
	var out [][2]string
	for _, at := range order {
		out = append(out, [2]string{"machine " + at.host, fmt.Sprintf("%s (shards %s of %d)", at.machine, strings.Join(shards[at], ", "), r.Shards[0].Of)})
	}
	return out
}

// mixes says that a cell's repetitions were measured on several machines.
func (c *collection) mixes(cell Cell) bool {
	return slices.ContainsFunc(c.runs, func(l *loadedRun) bool { return l.mixed[cell.id()] })
}
