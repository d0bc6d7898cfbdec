package raw

import (
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/perf/benchfmt"
)

// ops are the metrics that become separate benchmarks: one line per record.
var ops = map[Metric]string{
	Load:                      "Load",
	FullSync:                  "FullSync",
	PartialSync:               "PartialSync",
	NetworkProgrammingLatency: "NetworkProgrammingLatency",
	FirstPacket:               "FirstPacket",
}

// parts are the metrics that are additional units on their sync's line. Times are in ns, as benchstat expects.
var parts = map[Metric]string{
	Queue:        "queue-ns/op",
	Plan:         "plan-ns/op",
	Encode:       "encode-ns/op",
	Restore:      "restore-ns/op",
	Restores:     "restores/op",
	ToolUser:     "tool-user-ns/op",
	ToolSys:      "tool-sys-ns/op",
	RestoreBytes: "restore-B/op",
	ChildPeakRSS: "child-peak-B",
	Rules:        "rules",
	Chains:       "chains",
	Changes:      "changes/op",
}

// WriteBench writes records in the Go benchmark format: one line per sample, never averaged, so that benchstat can judge
// them. It omits failed syncs.
func WriteBench(w io.Writer, run Run, records iter.Seq2[Record, error]) error {
	out := benchfmt.NewWriter(w)
	config := benchConfig(run)
	var waiting []*sample
	open := map[sampleKey]*sample{}
	for record, err := range records {
		if err != nil {
			return fmt.Errorf("bench.txt: %w", err)
		}
		if record.Sync == 0 {
			if _, ok := ops[record.Metric]; ok && record.Error == "" {
				waiting = append(waiting, newSample(record))
			}
			continue
		}
		key := sampleKey{cell(record), record.Rep, record.Family, record.Sync}
		if ops[record.Metric] == "" && parts[record.Metric] == "" && record.Error == "" {
			continue
		}
		if record.Metric == NetworkProgrammingLatency || record.Metric == ChangeSynced { // one sync may bring many changes
			waiting = append(waiting, newSample(record))
			continue
		}
		s, ok := open[key]
		if !ok {
			s = &sample{parts: map[string]float64{}}
			open[key] = s
			waiting = append(waiting, s)
		}
		s.add(record)
	}
	for _, s := range waiting {
		if s.failed || s.name == "" {
			continue
		}
		if err := out.Write(s.result(config)); err != nil {
			return fmt.Errorf("bench.txt: %w", err)
		}
	}
	return nil
}

// sampleKey identifies a sync.
type sampleKey struct {
	cell   string
	rep    int
	family string
	sync   int
}

// sample is one line of bench.txt.
type sample struct {
	name    string
	seconds float64
	parts   map[string]float64 // by unit
	failed  bool
}

func newSample(r Record) *sample {
	s := &sample{parts: map[string]float64{}}
	s.add(r)
	return s
}

// add adds one record of the sync. The values of several restores or tables are summed.
func (s *sample) add(r Record) {
	s.failed = s.failed || r.Error != "" || r.Metric == SyncFailed && r.Value != 0
	if op, ok := ops[r.Metric]; ok {
		s.name, s.seconds = op+"/"+cell(r), r.Value
		return
	}
	unit, ok := parts[r.Metric]
	switch {
	case !ok:
	case strings.HasSuffix(unit, "ns/op"):
		s.parts[unit] += r.Value * 1e9
	case r.Metric == ChildPeakRSS:
		s.parts[unit] = max(s.parts[unit], r.Value)
	default:
		s.parts[unit] += r.Value
	}
}

func (s *sample) result(config []benchfmt.Config) *benchfmt.Result {
	values := []benchfmt.Value{{Value: s.seconds * 1e9, Unit: "ns/op"}}
	for _, unit := range slices.Sorted(maps.Keys(s.parts)) {
		values = append(values, benchfmt.Value{Value: s.parts[unit], Unit: unit})
	}
	return &benchfmt.Result{Config: config, Name: benchfmt.Name(s.name), Iters: 1, Values: values}
}

// cell names the cell and target of a record, as parameters of a benchmark's name.
func cell(r Record) string {
	fields := []string{
		"scenario=" + word(r.Scenario),
		"subject=" + word(r.Subject),
		"services=" + strconv.Itoa(r.Services),
		"endpoints=" + strconv.FormatFloat(r.Endpoints, 'g', 6, 64),
	}
	for _, name := range slices.Sorted(maps.Keys(r.Params)) {
		fields = append(fields, word(name)+"="+word(r.Params[name]))
	}
	if r.Family != "" {
		fields = append(fields, "family="+word(r.Family))
	}
	if r.Position != nil {
		fields = append(fields, "position="+strconv.Itoa(*r.Position))
	}
	if r.Target != "" {
		fields = append(fields, "target="+word(r.Target))
	}
	if r.Method != "" && r.Method != "sendto" {
		fields = append(fields, "method="+word(r.Method))
	}
	return strings.Join(fields, "/")
}

// word replaces characters that would end a benchmark's name or one of its parameters.
func word(s string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("/ =", r) || !unicode.IsPrint(r) {
			return '-'
		}
		return r
	}, s)
}

func benchConfig(run Run) []benchfmt.Config {
	var config []benchfmt.Config
	add := func(key, value string) {
		if value != "" {
			value = strings.Map(func(r rune) rune {
				if !unicode.IsPrint(r) {
					return ' '
				}
				return r
			}, value)
			config = append(config, benchfmt.Config{Key: key, Value: []byte(value), File: true})
		}
	}
	// "go1.26.8 linux/amd64", as from DetectVersions.
	if _, platform, ok := strings.Cut(run.Versions.Go, " "); ok {
		goos, goarch, _ := strings.Cut(platform, "/")
		add("goos", goos)
		add("goarch", goarch)
	}
	add("cpu", run.Machine.CPU)
	add("kernel", run.Versions.Kernel)
	add("iptables-legacy", run.Versions.IPTablesLegacy)
	add("iptables-nft", run.Versions.IPTablesNft)
	add("go", run.Versions.Go)
	add("synclab", run.Versions.Synclab)
	add("run", run.ID)
	add("seed", strconv.FormatUint(run.Seed, 10))
	return config
}
