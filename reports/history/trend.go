package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/reports/comparison"
	"synclab/reports/diff"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// What the points of trends may be.
const (
	ByRun       = "run"
	BySynclab   = "synclab"    // versions, which are commits
	ByKubeProxy = "kube-proxy" // versions
	ByKernel    = "kernel"     // releases
)

// Bys are all of them, the default first.
var Bys = []string{ByRun, BySynclab, ByKubeProxy, ByKernel}

// History is the trend of each figure.
type History struct {
	By      string   `json:"by"`
	Points  []Point  `json:"points"`
	Trends  []Trend  `json:"trends"`
	LeftOut []string `json:"left_out,omitempty"` // runs that are not complete
	// Tests is the number of p-values that are adjusted together. Adjusted ones above Level show no change.
	Tests      int     `json:"tests"`
	Correction string  `json:"correction"`
	Level      float64 `json:"level"`
}

// Point is a place on the axis of trends: a run, or the runs of one version or kernel.
type Point struct {
	Name string   `json:"name"`
	Runs []string `json:"runs"`
	// Unlike lists how the conditions of its first run differ from those of the point before.
	Unlike []records.Unlike `json:"unlike,omitempty"`

	run raw.Run // the first one
}

// Trend is a figure of one subject in one cell, on one kind of machine.
type Trend struct {
	Subject string       `json:"subject"`
	Cell    records.Cell `json:"cell"`
	Machine string       `json:"machine"`
	Figure  string       `json:"figure"`
	Detail  string       `json:"detail,omitempty"`
	Unit    string       `json:"unit"`
	Values  []Value      `json:"values"`
	Levels  []Level      `json:"levels"`
	// Threshold is the share by which a level may be above the one before; nil: no limit. Worse: the newest point shows
	// a level beyond it, which the points before did not show.
	Threshold *float64 `json:"threshold,omitempty"`
	Worse     bool     `json:"worse,omitempty"`

	of comparison.Figure
}

// Value is a trend's figure at one point.
type Value struct {
	Point int `json:"point"` // index in History.Points
	estimate.Estimate
}

// Options choose the points, and the thresholds.
type Options struct {
	By string // empty: ByRun
	diff.Options
}

// DefaultThreshold is the share by which a level may exceed the one before. It is below that of a diff: a history compares
// the sizes of changes that are shown with their thresholds, and no bounds of them.
const DefaultThreshold = 0.05

// Of makes the trends of entries, which are in order.
func Of(entries []Entry, o Options) *History {
	h := &History{By: cmp.Or(o.By, ByRun), Correction: "Benjamini-Hochberg", Level: estimate.Level}
	entries, points := h.places(entries)
	index := map[string]int{}
	for i, e := range entries {
		for j, f := range e.Figures {
			if at := points[i][j]; at >= 0 {
				h.add(index, at, e.Run, f)
			}
		}
	}
	thresholds := entries[len(entries)-1].Run.Scenario.Thresholds
	h.Trends = slices.DeleteFunc(h.Trends, func(t Trend) bool {
		return !slices.ContainsFunc(t.Values, func(v Value) bool { return v.Value != 0 }) // nothing happened
	})
	for i := range h.Trends {
		t := &h.Trends[i]
		slices.SortStableFunc(t.Values, func(a, b Value) int { return a.Point - b.Point })
		t.Threshold = o.Threshold(thresholds, t.Figure, DefaultThreshold)
	}
	slices.SortStableFunc(h.Trends, func(a, b Trend) int {
		return cmp.Or(a.Cell.ID().Compare(b.Cell.ID()), strings.Compare(a.Machine, b.Machine), strings.Compare(a.Subject, b.Subject))
	})
	h.judge()
	return h
}

// places makes the points, and returns that of each figure; -1: none. The figures get the subject and cell of their trend.
func (h *History) places(entries []Entry) (placed []Entry, points [][]int) {
	keys := map[string]int{}
	points = make([][]int, len(entries))
	for i, e := range entries {
		e.Figures = slices.Clone(e.Figures)
		for j := range e.Figures {
			if h.By == ByKubeProxy && !subject.IsKubeProxy(e.Figures[j].Subject) {
				points[i] = append(points[i], -1)
				continue
			}
			name := cmp.Or(h.place(e.Run, &e.Figures[j]), "unknown")
			key := name
			if h.By == ByRun {
				key += e.Run.Started.String() // two runs of a minute may have the same name
			}
			at, ok := keys[key]
			if !ok {
				at = len(h.Points)
				keys[key] = at
				h.Points = append(h.Points, Point{Name: name, run: e.Run})
			}
			if p := &h.Points[at]; !slices.Contains(p.Runs, e.Run.ID) {
				p.Runs = append(p.Runs, e.Run.ID)
			}
			points[i] = append(points[i], at)
		}
		placed = append(placed, e)
	}
	order := h.sortPoints()
	for i := range points {
		for j, at := range points[i] {
			if at >= 0 {
				points[i][j] = order[at]
			}
		}
	}
	for i := 1; i < len(h.Points); i++ {
		h.Points[i].Unlike = records.Unlikes(h.Points[i-1].run, h.Points[i].run)
	}
	return placed, points
}

// sortPoints sorts versions by their numbers, and returns the new index of each point. Other points are in order.
func (h *History) sortPoints() []int {
	order := make([]int, len(h.Points))
	for i := range order {
		order[i] = i
	}
	if h.By == ByKubeProxy || h.By == ByKernel {
		slices.SortStableFunc(order, func(i, j int) int { return compareVersions(h.Points[i].Name, h.Points[j].Name) })
	}
	sorted, index := make([]Point, len(order)), make([]int, len(order))
	for to, from := range order {
		sorted[to], index[from] = h.Points[from], to
	}
	h.Points = sorted
	return index
}

func compareVersions(a, b string) int {
	x, errX := version.ParseGeneric(a)
	y, errY := version.ParseGeneric(b)
	switch {
	case errX != nil || errY != nil:
		return strings.Compare(a, b)
	case x.LessThan(y):
		return -1
	case y.LessThan(x):
		return 1
	}
	return 0
}

// place returns the name of a figure's point; empty: unknown. It removes from subject and cell what the point says.
func (h *History) place(run raw.Run, f *Figure) string {
	switch h.By {
	case BySynclab:
		return run.Versions.Synclab
	case ByKubeProxy:
		name, mode, _ := strings.Cut(f.Subject, "/")
		_, version, ok := strings.Cut(name, "@")
		f.Subject = subject.KubeProxy + "/" + mode
		if ok {
			return version
		}
		return run.Versions.KubeProxy
	case ByKernel:
		kernel := f.Cell.Params[raw.KernelField]
		f.Cell.Params = maps.Clone(f.Cell.Params)
		delete(f.Cell.Params, raw.KernelField)
		if kernel == "" || kernel == raw.HostKernel {
			return run.Versions.Kernel
		}
		return cmp.Or(run.Kernels[kernel], kernel)
	}
	return fmt.Sprintf("%s %s", run.ID, run.Started.UTC().Format("2006-01-02 15:04"))
}

// add adds a value to its trend. Several runs at one point are one value: the median of all their repetitions.
func (h *History) add(index map[string]int, point int, run raw.Run, f Figure) {
	of, ok := comparison.Named(f.Name)
	if !ok {
		return // of another version of synclab
	}
	of.Detail = f.Detail
	machine := records.MachineText(run.Machine)
	key := fmt.Sprint(f.Subject, f.Cell.ID(), machine, f.Name, f.Detail)
	at, ok := index[key]
	if !ok {
		at = len(h.Trends)
		index[key] = at
		h.Trends = append(h.Trends, Trend{Subject: f.Subject, Cell: f.Cell, Machine: machine, Figure: f.Name, Detail: f.Detail, Unit: f.Unit, of: of})
	}
	t := &h.Trends[at]
	i := slices.IndexFunc(t.Values, func(v Value) bool { return v.Point == point })
	switch {
	case i < 0:
		t.Values = append(t.Values, Value{point, f.Estimate})
	case h.By != ByRun: // a run has a figure twice only in summaries
		t.Values[i].Estimate = pooled(t.Values[i].Estimate, f.Estimate)
	}
}

// pooled is the estimate of two runs. Repetitions of both are one sample.
func pooled(a, b estimate.Estimate) estimate.Estimate {
	all := append(repetitions(a), repetitions(b)...)
	e := estimate.Of(a.Name, a.Unit, estimate.Single(all...), 50)
	e.N, e.AtLeast = a.N+b.N, a.AtLeast || b.AtLeast
	if e.AtLeast {
		e.Unbounded()
	}
	return *e
}

// repetitions are the values of the repetitions, or the estimate's own where a summary lacks them.
func repetitions(e estimate.Estimate) []float64 {
	if len(e.ByRepetition) == 0 {
		return []float64{e.Value}
	}
	return e.Values()
}
