package reports

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"synclab/bench"
)

// benchNames are the metrics that get a line each in bench.txt: one line per raw value, for benchstat to summarize.
var benchNames = map[bench.Metric]string{
	bench.FullSync:                  "FullSync",
	bench.PartialSync:               "PartialSync",
	bench.NetworkProgrammingLatency: "NetworkProgrammingLatency",
	bench.FirstPacket:               "FirstPacket",
}

// syncUnit is the unit that a metric has in bench.txt.
type syncUnit struct {
	metric bench.Metric
	unit   string
}

// syncUnits are the values of a sync that stand on its line. Times become nanoseconds.
var syncUnits = []syncUnit{
	{bench.Plan, "plan-ns"}, {bench.Encode, "encode-ns"}, {bench.ToolUser, "tool-user-ns"}, {bench.ToolSys, "tool-sys-ns"},
	{bench.RestoreBytes, "restore-B"}, {bench.Rules, "rules"}, {bench.Chains, "chains"},
}

// writeBench writes the Go benchmark format.
func (s *Summary) writeBench(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, "Unit rules assume=exact")
	fmt.Fprintln(out, "Unit chains assume=exact")
	for i, l := range s.collected.runs {
		writeBenchHead(out, s.collected.labels[i], l)
		attached := attachedValues(l.records)
		for _, r := range l.records {
			name, ok := benchNames[r.Metric]
			if !ok || r.Error != "" {
				continue
			}
			fmt.Fprintf(out, "Benchmark%s%s 1 %s ns/op", name, benchParameters(r), nanoseconds(r.Value))
			if r.Metric == bench.FullSync || r.Metric == bench.PartialSync {
				values := attached[place{rep: r.Rep, sync: r.Sync, family: r.Family, cell: recordCell(r)}]
				for _, u := range syncUnits {
					if v, ok := values[u.metric]; ok {
						text := strconv.FormatFloat(v, 'f', -1, 64)
						if strings.HasSuffix(u.unit, "-ns") {
							text = nanoseconds(v)
						}
						fmt.Fprintf(out, " %s %s", text, u.unit)
					}
				}
			}
			fmt.Fprintln(out)
		}
	}
	return out.Flush()
}

// writeBenchHead writes what is the same for all lines of a run: benchstat's file configuration.
func writeBenchHead(w io.Writer, label string, l *loadedRun) {
	for _, pair := range [][2]string{
		{"goos", "linux"}, {"cpu", l.run.Machine.CPU}, {"run", label}, {"seed", strconv.FormatUint(l.run.Seed, 10)},
		{"kernel", l.run.Versions.Kernel}, {"synclab", l.run.Versions.Synclab},
		{"iptables-legacy", l.run.Versions.IPTablesLegacy}, {"iptables-nft", l.run.Versions.IPTablesNft},
	} {
		if pair[1] != "" {
			fmt.Fprintf(w, "%s: %s\n", pair[0], strings.ReplaceAll(pair[1], "\n", " "))
		}
	}
}

func recordCell(r bench.Record) cellID {
	return Cell{r.Scenario, r.Services, r.Endpoints, r.Params}.id()
}

// attachedValues are the counts and phases of each sync, added up over tables.
func attachedValues(records []bench.Record) map[place]map[bench.Metric]float64 {
	out := map[place]map[bench.Metric]float64{}
	for _, r := range records {
		if r.Sync == 0 || !slices.ContainsFunc(syncUnits, func(u syncUnit) bool { return u.metric == r.Metric }) {
			continue
		}
		key := place{rep: r.Rep, sync: r.Sync, family: r.Family, cell: recordCell(r)}
		if out[key] == nil {
			out[key] = map[bench.Metric]float64{}
		}
		out[key][r.Metric] += r.Value
	}
	return out
}

// benchParameters is the part of a benchmark's name that says what was measured where.
func benchParameters(r bench.Record) string {
	parts := []string{
		"scenario=" + fileName(r.Scenario), "subject=" + fileName(r.Subject),
		"services=" + strconv.Itoa(r.Services), "endpoints=" + strconv.FormatFloat(r.Endpoints, 'f', -1, 64),
	}
	for _, field := range slices.Sorted(maps.Keys(r.Params)) {
		if field != sizeField {
			parts = append(parts, fileName(field)+"="+fileName(r.Params[field]))
		}
	}
	if r.Family != "" {
		parts = append(parts, "family="+r.Family)
	}
	if r.Position != nil {
		parts = append(parts, "position="+strings.ReplaceAll(strings.TrimPrefix(positionText(*r.Position), "position "), " ", "-"))
	}
	return "/" + strings.ReplaceAll(strings.Join(parts, "/"), ",", "")
}

// nanoseconds of a time in seconds; records hold whole nanoseconds, which a float may miss in its last bit.
func nanoseconds(seconds float64) string {
	return strconv.FormatFloat(math.Round(seconds*1e9), 'f', 0, 64)
}
