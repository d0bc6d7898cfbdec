package reports

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"

	"synclab/reports/estimate"
)

// BenchGrowth is the growth of one unit of one Go benchmark with its parameter services: value ∝ services^Slope,
// fitted on logarithms. Each -count is a repetition. Units are from benchfmt: sec/op instead of ns/op.
type BenchGrowth struct {
	Benchmark string    `json:"benchmark"` // its name, with services=N
	Unit      string    `json:"unit"`
	Sizes     []int     `json:"sizes"`
	Medians   []float64 `json:"medians"` // of the results at each size
	// Power is nil if fewer than two sizes have a value above zero.
	*estimate.Power
}

// benchUnits are the units in the table. The JSON has all units.
var benchUnits = []string{"sec/op", "B/op", "allocs/op"}

var servicesParameter = regexp.MustCompile(`/services=([0-9]+)(/|$)`)

// benchSeries holds the results of one benchmark in one unit, by size.
type benchSeries struct {
	name, unit string
	values     map[int][]float64
}

// ReadBenchGrowth reads the output of go test -bench. It skips benchmarks without a parameter services, or with a
// single size. It fails if no benchmark is left.
func ReadBenchGrowth(r io.Reader, file string) ([]BenchGrowth, error) {
	var all []*benchSeries
	found := map[[2]string]*benchSeries{}
	reader := benchfmt.NewReader(r, file)
	for reader.Scan() {
		result, ok := reader.Result().(*benchfmt.Result)
		if !ok {
			continue // other output of go test
		}
		name, services, ok := withoutServices(result.Name)
		if !ok {
			continue
		}
		for _, v := range result.Values {
			key := [2]string{name, v.Unit}
			if found[key] == nil {
				found[key] = &benchSeries{name, v.Unit, map[int][]float64{}}
				all = append(all, found[key])
			}
			found[key].values[services] = append(found[key].values[services], v.Value)
		}
	}
	if err := reader.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var out []BenchGrowth
	for _, s := range all {
		if len(s.values) > 1 {
			out = append(out, s.growth())
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: %w", file, errors.New("no benchmark with a parameter services=N at two sizes or more"))
	}
	return out, nil
}

// withoutServices removes the size and the common number of CPUs from a benchmark's name.
func withoutServices(name benchfmt.Name) (rest string, services int, ok bool) {
	base, parts := name.Parts()
	full := string(base)
	for _, part := range parts {
		if part[0] == '/' {
			full += string(part)
		}
	}
	match := servicesParameter.FindStringSubmatchIndex(full)
	if match == nil {
		return "", 0, false
	}
	services, err := strconv.Atoi(full[match[2]:match[3]])
	return full[:match[2]] + "N" + full[match[3]:], services, err == nil && services > 0
}

func (s *benchSeries) growth() BenchGrowth {
	g := BenchGrowth{Benchmark: s.name, Unit: s.unit}
	for services := range s.values {
		g.Sizes = append(g.Sizes, services)
	}
	slices.Sort(g.Sizes)
	var points []estimate.Point
	for _, services := range g.Sizes {
		results := estimate.Single(s.values[services]...)
		g.Medians = append(g.Medians, results.Median())
		points = append(points, estimate.Point{X: float64(services), Y: results})
	}
	if law, ok := estimate.FitPower(points); ok {
		g.Power = &law
	}
	return g
}

// WriteBenchGrowth writes the growth of time, bytes and allocations as a table.
func WriteBenchGrowth(w io.Writer, all []BenchGrowth) error {
	var sizes []int
	for _, g := range all {
		sizes = append(sizes, g.Sizes...)
	}
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	header := []string{"benchmark"}
	for _, services := range sizes {
		header = append(header, Grouped(int64(services)))
	}
	var b strings.Builder
	for _, unit := range benchUnits {
		t := textTable{header: append(slices.Clone(header), "exponent", "95 %", "from size to size", "fits")}
		for _, g := range all {
			if g.Unit == unit {
				t.add(g.cells(sizes)...)
			}
		}
		if len(t.rows) == 0 {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "Growth of %s with the number of Services\n\n", unit)
		t.write(&b)
	}
	b.WriteString("\nmedians by size; the exponent is that of the number of Services: 0 is flat, 1 is linear\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (g BenchGrowth) cells(sizes []int) []string {
	cells := []string{g.Benchmark}
	for _, services := range sizes {
		text := "–"
		if i := slices.Index(g.Sizes, services); i >= 0 {
			text = formatBench(g.Medians[i], g.Unit)
		}
		cells = append(cells, text)
	}
	if g.Power == nil {
		return append(cells, "–", "–", "–", "–")
	}
	return append(cells, exponentText(g.Slope), intervalText(g.Fit, exponentText), localText(*g.Power), fitsText(*g.Power))
}

// formatBench formats a value in a benchmark's unit.
func formatBench(v float64, unit string) string {
	switch unit {
	case "sec/op":
		return Format(v, "s")
	case "B/op":
		return Format(v, "B")
	}
	return significant(v)
}
