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

	"github.com/montanaflynn/stats"
	"golang.org/x/perf/benchfmt"
)

// ops are the metrics that become separate benchmarks: one line per repetition.
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

// WriteBench writes records in the Go benchmark format, for benchstat: one line per repetition, since its values depend on
// each other and are no independent samples. Each number is the median of the repetition's values. It omits failed syncs.
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
	for _, r := range byRepetition(waiting) {
		r.Config = config
		if err := out.Write(r); err != nil {
			return fmt.Errorf("bench.txt: %w", err)
		}
	}
	return nil
}

// byRepetition makes one result of the samples of each benchmark in each repetition, in the order of the first ones.
func byRepetition(samples []*sample) (out []*benchfmt.Result) {
	type line struct {
		name string
		rep  int
	}
	values := map[line]map[string][]float64{} // by unit
	var lines []line
	for _, s := range samples {
		if s.failed || s.name == "" {
			continue
		}
		at := line{s.name, s.rep}
		if values[at] == nil {
			values[at], lines = map[string][]float64{}, append(lines, at)
		}
		values[at][timeUnit] = append(values[at][timeUnit], s.seconds*1e9)
		for unit, value := range s.parts {
			values[at][unit] = append(values[at][unit], value)
		}
	}
	for _, at := range lines {
		r := &benchfmt.Result{Name: benchfmt.Name(at.name), Iters: len(values[at][timeUnit])}
		units := slices.DeleteFunc(slices.Sorted(maps.Keys(values[at])), func(unit string) bool { return unit == timeUnit })
		for _, unit := range append([]string{timeUnit}, units...) {
			median, _ := stats.Median(values[at][unit]) // there are values
			r.Values = append(r.Values, benchfmt.Value{Value: median, Unit: unit})
		}
		out = append(out, r)
	}
	return out
}

const timeUnit = "ns/op"

// sampleKey identifies a sync.
type sampleKey struct {
	cell   string
	rep    int
	family string
	sync   int
}

// sample is one sync, or another value.
type sample struct {
	name    string
	rep     int
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
	s.rep = r.Rep
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
