package sections

import (
	"fmt"
	"slices"
	"strings"

	"synclab/reports/comparison"
	"synclab/reports/doc"
)

// everyCell returns all cells, including those with a single subject, if the summary has any comparison.
func (s *Summary) everyCell() []comparison.CellComparison {
	if len(s.Comparisons) == 0 {
		return nil
	}
	var out []comparison.CellComparison
	for _, cell := range s.Collected.Cells {
		i := slices.IndexFunc(s.Comparisons, func(c comparison.CellComparison) bool { return c.Cell.ID() == cell.ID() })
		if i >= 0 {
			out = append(out, s.Comparisons[i])
			continue
		}
		sides := comparison.SidesOf(s.Collected, cell)
		out = append(out, comparison.CellComparison{Cell: cell, Sides: sides, Floors: comparison.FloorsOf(sides)})
	}
	return out
}

// overviewSection has the syncs and memory of all cells on one page.
func (s *Summary) overviewSection() doc.Section {
	out := doc.Section{ID: "overview", Title: "All sizes on one page", Short: "All sizes", Dense: true}
	t := s.overviewTable()
	if len(t.Rows) == 0 {
		return out
	}
	on := doc.Page
	if len(s.Collected.Cells) > 1 {
		on |= doc.Markdown
	}
	out.Add(doc.Block{On: on, Soft: true, Note: "Medians of the repetitions ± 95 % confidence. The small line, or the text in brackets, is the ratio to kube-proxy with the same " +
		"backend, else to the cell's baseline, with its 95 % interval. “Of which kernel” is the kernel time of a sync and its share. The kernel floor is the least kernel time of any " +
		"subject on the same kernel interface, for the same Services in this run. “× kernel floor” is a whole sync divided by the kernel floor."}, doc.Block{On: on, Table: t})
	return out
}

// overviewTable has the syncs and memory of all cells: ratios with intervals, kernel time, and the kernel floor.
func (s *Summary) overviewTable() *doc.Table {
	t := &doc.Table{Intervals: true, Columns: []doc.Column{{Name: "Subject"}, {Name: "Services", Numeric: true, Row: true}, {Name: "Endpoints", Numeric: true, Title: "mean, per Service", Differs: true, Row: true}, {Name: "Settings", Row: true}}}
	for _, sync := range []string{comparison.FigureFull, comparison.FigurePartial} {
		t.Columns = append(t.Columns, doc.Column{Name: comparison.FigureOf(sync).Text, Numeric: true, Title: comparison.FigureOf(sync).Title},
			doc.Column{Name: "of which kernel", Numeric: true, Title: comparison.FigureOf(comparison.FigureOf(sync).Kernel).Title},
			doc.Column{Name: "× kernel floor", Numeric: true, Title: "the sync divided by the kernel floor: the least kernel time of any subject on the same kernel interface in this cell"})
	}
	for _, name := range []string{comparison.FigureRSS, comparison.FigureTotalRSS} {
		t.Columns = append(t.Columns, doc.Column{Name: comparison.FigureOf(name).Text, Numeric: true, Title: comparison.FigureOf(name).Title})
	}
	for _, c := range s.everyCell() {
		place := []doc.Cell{doc.Int(c.Cell.Services), endpointsCell(c.Cell), settingsCell(c.Cell)}
		for _, side := range c.Sides {
			t.Add(slices.Concat([]doc.Cell{s.SeriesCell(side.Series)}, place, overviewCells(c, side))...)
		}
		for _, through := range []string{"legacy", "nf_tables"} {
			for _, on := range comparison.PlacesOf(c.Sides) {
				if cells, ok := floorCells(c, through, on, len(t.Columns)-1-len(place)); ok {
					t.Add(slices.Concat([]doc.Cell{{Text: "kernel floor, " + through, Title: on, Faint: true}}, place, cells)...)
				}
			}
		}
	}
	return t
}

// overviewCells returns the cells of one side.
func overviewCells(c comparison.CellComparison, side comparison.Side) []doc.Cell {
	var cells []doc.Cell
	baseline := c.Nearest(side)
	ratio := func(name string) doc.Cell {
		cell := FigureCell(side, comparison.FigureOf(name))
		if r := c.Ratio(side.Series, baseline, name); r != nil {
			cell.Sub = strings.TrimSuffix(r.Words+", "+r.IntervalText(), ", ")
			cell.Title += ", ratio to " + baseline + ": " + doc.Exact(r.Ratio)
			if r.Observed {
				cell.Title += ", " + r.Warning
			}
		}
		return cell
	}
	for _, sync := range []string{comparison.FigureFull, comparison.FigurePartial} {
		kernel := FigureCell(side, comparison.FigureOf(comparison.FigureOf(sync).Kernel))
		whole, part := side.Figure(sync), side.Figure(comparison.FigureOf(sync).Kernel)
		if whole != nil && part != nil && whole.Value > 0 && part.Value > 0 && !whole.AtLeast {
			kernel.Sub = doc.Format(part.Value/whole.Value, "ratio")
		}
		distance := doc.None()
		if v, ok := c.AboveFloor(side, sync); ok {
			distance = doc.Cell{Text: comparison.Times(v) + "×", Value: doc.Exact(v)}
		}
		cells = append(cells, ratio(sync), kernel, distance)
	}
	return append(cells, ratio(comparison.FigureRSS), ratio(comparison.FigureTotalRSS))
}

// floorCells returns the kernel floors of a kernel interface, in the columns of kernel time.
func floorCells(c comparison.CellComparison, through, place string, columns int) (cells []doc.Cell, ok bool) {
	cells = make([]doc.Cell, columns)
	for i, metric := range []string{comparison.FigureFullSys, comparison.FigurePartialSys} {
		for _, f := range c.Floors {
			if f.Interface == through && f.Place == place && f.Metric == metric {
				cells[3*i+1] = doc.Value(f.Value, "s")
				cells[3*i+1].Sub = f.Series
				ok = true
			}
		}
	}
	return cells, ok
}

// floorTable shows the kernel time of each side's syncs, and the kernel floors.
func (s *Summary) floorTable() *doc.Table {
	t := &doc.Table{Note: "× kernel floor: the sync divided by the kernel floor, which is the least kernel time of any subject on the same kernel interface for the same Services.",
		Columns: []doc.Column{{Name: "of which kernel"}, {Name: "full", Numeric: true}, {Name: "kernel", Numeric: true}, {Name: "× kernel floor", Numeric: true},
			{Name: "partial", Numeric: true}, {Name: "kernel", Numeric: true}, {Name: "× kernel floor", Numeric: true}}}
	for _, c := range s.everyCell() {
		if len(c.Floors) == 0 {
			continue
		}
		if heading := s.cellHeading(c.Cell); heading != "" {
			t.Heading(heading)
		}
		for _, side := range c.Sides {
			cells := []doc.Cell{s.SeriesCell(side.Series)}
			for _, sync := range []string{comparison.FigureFull, comparison.FigurePartial} {
				cells = append(cells, doc.Text(comparison.FigureValue(side.Figure(sync), false)), doc.Text(comparison.FigureValue(side.Figure(comparison.FigureOf(sync).Kernel), false)), doc.Text(c.TimesFloor(side, sync)))
			}
			t.Add(cells...)
		}
		for _, f := range c.Floors {
			sync := "full"
			if f.Metric == comparison.FigurePartialSys {
				sync = "partial"
			}
			t.Heading(fmt.Sprintf("  kernel floor of a %s sync, %s: %s, %s", sync, f.Interface, doc.Format(f.Value, "s"), f.Series))
		}
	}
	return t
}
