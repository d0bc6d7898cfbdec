package reports

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"

	"golang.org/x/perf/benchfmt"

	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/sections"
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
	if power, ok := estimate.FitPower(points); ok {
		g.Power = &power
	}
	return g
}

// WriteBenchGrowth writes the growth of time, bytes and allocations as tables.
func WriteBenchGrowth(w io.Writer, all []BenchGrowth) error {
	var sizes []int
	for _, g := range all {
		sizes = append(sizes, g.Sizes...)
	}
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	s := doc.Section{ID: "growth"}
	for _, unit := range benchUnits {
		s.Add(doc.Block{Table: benchTable(all, unit, sizes)})
	}
	s.Add(doc.Block{Note: "medians by size; the exponent is that of the number of Services: 0 is flat, 1 is linear"})
	d := &doc.Document{Title: "Growth of benchmarks with the number of Services", Sections: []doc.Section{s}}
	return d.Text(w)
}

// benchTable has a row for each benchmark with results in a unit.
func benchTable(all []BenchGrowth, unit string, sizes []int) *doc.Table {
	t := &doc.Table{Title: unit, Columns: []doc.Column{{Name: "benchmark"}}}
	for _, services := range sizes {
		t.Columns = append(t.Columns, doc.Column{Name: doc.Grouped(int64(services)), Numeric: true})
	}
	t.Columns = append(t.Columns, doc.Column{Name: "exponent", Numeric: true}, doc.Column{Name: "95 %", Numeric: true}, doc.Column{Name: "from size to size"},
		doc.Column{Name: "fits"})
	for _, g := range all {
		if g.Unit == unit {
			t.Add(g.cells(sizes)...)
		}
	}
	return t
}

func (g BenchGrowth) cells(sizes []int) []doc.Cell {
	cells := []doc.Cell{doc.Text(g.Benchmark)}
	for _, services := range sizes {
		cell := doc.None()
		if i := slices.Index(g.Sizes, services); i >= 0 {
			cell = doc.Cell{Text: formatBench(g.Medians[i], g.Unit), Value: doc.Exact(g.Medians[i])}
		}
		cells = append(cells, cell)
	}
	if g.Power == nil {
		return append(cells, doc.None(), doc.None(), doc.None(), doc.None())
	}
	return append(cells, doc.Cell{Text: sections.ExponentText(g.Slope), Value: doc.Exact(g.Slope)}, doc.Text(sections.IntervalText(g.Fit, sections.ExponentText)),
		doc.Text(sections.LocalText(*g.Power)), doc.Text(sections.FitsText(*g.Power)))
}

// formatBench formats a value in a benchmark's unit.
func formatBench(v float64, unit string) string {
	switch unit {
	case "sec/op":
		return doc.Format(v, "s")
	case "B/op":
		return doc.Format(v, "B")
	}
	return doc.Significant(v)
}
