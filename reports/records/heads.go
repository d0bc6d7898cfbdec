package records

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"synclab/bench/lab/shell"
	"synclab/bench/outfile"
	"synclab/bench/raw"
	"synclab/reports/doc"
)

// RunHead describes a run for the reader, with all that is needed to repeat it.
type RunHead struct {
	Label       string     `json:"label"`
	Dir         string     `json:"dir"` // the folder's name
	Status      string     `json:"status"`
	Reason      string     `json:"reason,omitempty"`
	Started     time.Time  `json:"started"`
	Finished    *time.Time `json:"finished,omitempty"`
	Scenario    string     `json:"scenario"`
	Description string     `json:"description,omitempty"`
	Subjects    []string   `json:"subjects"`
	// Observed is as in raw.Run. Feed is how objects reached the subjects: "informers" in the lab's process, "api"
	// over HTTP.
	Observed string `json:"observed,omitempty"`
	Feed     string `json:"feed"`
	Reps     int    `json:"reps"`
	Seed     uint64 `json:"seed"`
	Command  string `json:"command"`
	// Foreign: the run belongs to another user, or its command is none that Synclab writes. It is shown, not offered.
	Foreign  bool         `json:"-"`
	Versions raw.Versions `json:"versions"`
	Machine  raw.Machine  `json:"machine"`
	// Kernels is as in raw.Run.
	Kernels map[string]string `json:"kernels,omitempty"`
	// Shards are the shards of a merged run. Machine and Versions then have only the values that all shards share.
	Shards []ShardHead `json:"shards,omitempty"`
	// Missing names the missing shards.
	Missing string `json:"missing,omitempty"`
}

func RunHeads(c *Collection) []RunHead {
	var heads []RunHead
	for i, l := range c.Runs {
		r := l.Info
		heads = append(heads, RunHead{
			Label: c.Labels[i], Dir: filepath.Base(l.Dir), Status: r.Status, Reason: r.Reason, Started: r.Started,
			Finished: r.Finished, Scenario: r.Scenario.Name, Description: strings.TrimSpace(r.Scenario.Description),
			Subjects: r.Subjects, Feed: cmp.Or(r.Feed, raw.FeedInformers), Observed: r.Observed, Reps: r.Reps, Seed: r.Seed, Command: r.Command, Versions: r.Versions, Machine: r.Machine, Kernels: r.Kernels,
			Shards: l.ShardHeads(), Missing: l.MissingText(), Foreign: l.foreign(),
		})
	}
	return heads
}

func (l *Run) foreign() bool {
	if len(l.Shards) > 0 {
		return slices.ContainsFunc(l.Shards, (*Run).foreign)
	}
	own, err := outfile.Own(l.Dir, filepath.Join(l.Dir, raw.RunFile))
	return err != nil || !own || !shell.Calls("synclab", l.Info.Command)
}

// Title is the scenarios and the sizes: "steady-churn: 10,000 Services × 10 endpoints".
func Title(c *Collection) string {
	var names []string
	for _, l := range c.Runs {
		names = append(names, l.Info.Scenario.Name)
	}
	text := doc.JoinWords(Distinct(names))
	if text == "" {
		text = "run"
	}
	if len(c.Cells) == 0 {
		return text + ": no records"
	}
	return text + ": " + SizesText(c.Cells)
}

// SizesText is the range of the cells' sizes: "100 … 10,000 Services × 10 endpoints".
func SizesText(cells []Cell) string {
	text := ShortSizes(cells)
	if strings.HasSuffix(text, " × 1") {
		return text + " endpoint"
	}
	return text + " endpoints"
}

// ShortSizes is SizesText without its last word.
func ShortSizes(cells []Cell) string {
	services, endpoints := cells[0].Services, cells[0].Endpoints
	most, mostEndpoints := services, endpoints
	for _, cell := range cells {
		services, most = min(services, cell.Services), max(most, cell.Services)
		endpoints, mostEndpoints = min(endpoints, cell.Endpoints), max(mostEndpoints, cell.Endpoints)
	}
	text := doc.Grouped(int64(services))
	if most != services {
		text += " … " + doc.Grouped(int64(most))
	}
	if text == "1" {
		text += " Service × " + EndpointsText(endpoints)
	} else {
		text += " Services × " + EndpointsText(endpoints)
	}
	if EndpointsText(mostEndpoints) != EndpointsText(endpoints) {
		text += " … " + EndpointsText(mostEndpoints)
	}
	return text
}

// Measured is the time of the run.
func (r RunHead) Measured() string {
	text := r.Started.Format("2006-01-02 15:04 MST")
	if r.Finished != nil {
		text += ", " + r.Finished.Sub(r.Started).Round(time.Second).String()
	}
	return text
}

// Place is when and where the run was measured, in a few words.
func (r RunHead) Place() string {
	parts := []string{r.Started.Format("2006-01-02"), doc.Plural(len(r.Subjects), "subject"), doc.Plural(r.Reps, "repetition")}
	if kernels := r.kernels(); kernels != "" {
		parts = append(parts, "Linux "+kernels)
	}
	if r.Machine.CPUs > 0 {
		parts = append(parts, doc.Plural(r.Machine.CPUs, "CPU"))
	}
	return strings.Join(parts, ", ")
}

// VersionList has the names and versions of everything that the numbers depend on.
func (r RunHead) VersionList() [][2]string {
	var out [][2]string
	memory := ""
	if r.Machine.MemoryBytes > 0 {
		memory = doc.Format(float64(r.Machine.MemoryBytes), "B")
	}
	cpu := fmt.Sprintf("%s × %d", r.Machine.CPU, r.Machine.CPUs)
	if r.Machine.CPUs == 0 {
		cpu = "" // several machines
	}
	privilege := "root"
	if r.Machine.UserNamespace {
		privilege = "user namespace"
	}
	for _, v := range [][2]string{
		{"scenario", r.Scenario}, {"seed", strconv.FormatUint(r.Seed, 10)}, {"repetitions", strconv.Itoa(r.Reps)},
		{"subjects", strings.Join(r.Subjects, ", ")}, {"status", r.Status}, {"measured", r.Measured()},
		{"synclab", r.Versions.Synclab}, {"Go", r.Versions.Go}, {"kernel", r.kernels()},
		{"iptables (legacy)", r.Versions.IPTablesLegacy}, {"iptables (nft)", r.Versions.IPTablesNft}, {"nft", r.Versions.Nft},
		{"kube-proxy", r.Versions.KubeProxy}, {"Cilium", r.Versions.Cilium}, {"objects", FeedText(r.Feed)},
		{"system", r.Machine.OS}, {"CPU", cpu}, {"memory", memory}, {"ran as", privilege},
	} {
		if v[1] != "" {
			out = append(out, v)
		}
	}
	return append(out, r.HostList()...)
}

// kernels is the releases of all kernels of the run.
func (r RunHead) kernels() string {
	if len(r.Kernels) == 0 {
		return r.Versions.Kernel
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(r.Kernels)) {
		parts = append(parts, name+": "+r.Kernels[name])
	}
	return strings.Join(parts, ", ")
}

// VersionsText is one line with the versions and the CPU.
func (r RunHead) VersionsText() string {
	var parts []string
	for _, v := range [][2]string{{"synclab", r.Versions.Synclab}, {"kernel", r.kernels()}, {"", r.Versions.IPTablesLegacy},
		{"", r.Versions.IPTablesNft}, {"", r.Versions.Nft}, {"kube-proxy", r.Versions.KubeProxy}, {"Cilium", r.Versions.Cilium}, {"", r.Versions.Go}, {"", r.Machine.CPU}} {
		if v[1] != "" {
			parts = append(parts, strings.TrimSpace(v[0]+" "+v[1]))
		}
	}
	return strings.Join(parts, ", ")
}

// HostList is the name and kind of each machine that measured shards, with the numbers of those shards.
func (r RunHead) HostList() [][2]string {
	type place struct{ host, machine string }
	shards := map[place][]string{}
	var order []place
	for _, h := range r.Shards {
		at := place{h.Host, h.MachineText()}
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

func FeedText(feed string) string {
	if feed == raw.FeedAPI {
		return "from the fake API server, over HTTP"
	}
	return "through informers, in process"
}

// ShortSettings removes the paths of the fields: "minSyncPeriod=1s policy=token-bucket".
func ShortSettings(settings string) string {
	words := strings.Fields(settings)
	for i, w := range words {
		field, value, _ := strings.Cut(w, "=")
		words[i] = field[strings.LastIndexByte(field, '.')+1:] + "=" + value
	}
	return strings.Join(words, " ")
}

// ShortSeries removes the proxier's name from a subject: "iptables-legacy".
func ShortSeries(name string) string {
	_, backend, ok := strings.Cut(name, "/")
	if !ok || strings.Contains(backend, " · ") {
		return name
	}
	return backend
}

func SettingsTail(settings string) string {
	if settings == "" {
		return ""
	}
	return " (" + settings + ")"
}

// FaultsIn lists the faults that started in a cell.
func FaultsIn(c *Samples) []string {
	var out []string
	for _, r := range c.Records {
		if r.Metric == raw.FaultDuration && !slices.Contains(out, r.Fault) {
			out = append(out, r.Fault)
		}
	}
	return out
}
