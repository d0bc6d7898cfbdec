package doc

import (
	"cmp"
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Table is any table of a report. A row with a single cell in a table of several columns is a heading within the table.
type Table struct {
	Title   string
	Note    string // below the table
	Columns []Column
	Rows    [][]Cell
	// Intervals: ± in cells is the wider half of the 95 % confidence interval. A note explains it.
	Intervals bool
}

// Column describes the cells below its name. On a terminal, the name is Short, or Name with a small first letter.
type Column struct {
	Name, Short string
	On          Media
	Numeric     bool
	// Row: the column names the row, as the first one does: each part of a table that is too wide begins with it. A table
	// that has only such columns is not shown.
	Row bool
	// Title explains the column on the page, Legend below the table on a terminal: "react: reaction of an isolated change".
	Title, Legend string
	// Differs: the column is shown only if its cells differ. Above: on a terminal, its values stand above the rows, where
	// they change.
	Differs, Above bool
	// Spare columns are left out of a terminal's table that is too wide, the largest numbers first. 0 is never left out.
	Spare int
	// Group splits a terminal's table that is too wide: columns of one group stay together, the first column is
	// repeated, and the group's name stands above. Only then is Short the name.
	Group string
	Color color.NRGBA // of a series, if columns are subjects
}

// Field is a column with the cell that each row has there.
type Field[R any] struct {
	Column
	Cell func(R) Cell
}

// TableOf makes a table with a row for each of rows. Columns and cells cannot get out of step.
func TableOf[R any](rows []R, fields ...Field[R]) *Table {
	t := &Table{}
	for _, f := range fields {
		t.Columns = append(t.Columns, f.Column)
	}
	for _, row := range rows {
		cells := make([]Cell, len(fields))
		for i, f := range fields {
			cells[i] = f.Cell(row)
		}
		t.Add(cells...)
	}
	return t
}

// Cell is a value as shown. Value is what the page sorts by, in full precision; empty: Text.
type Cell struct {
	Text string
	Sub  string // below Text and smaller; lines are separated by \n. Markdown shows it in brackets, a terminal does not.
	// Terminal and Markdown replace Text there. Narrow replaces Text in a terminal's table that is too wide.
	Terminal, Markdown, Narrow string
	Value                      string
	Title                      string // details, on the page
	// Badges are caveats about all values of the row, on the page. They link to Caveats.
	Badges []string
	Color  color.NRGBA
	Faint  bool
	Loud   bool         // a result that should not occur
	Heat   int          // background on the page: -3 (much better than the baseline) to 3 (much worse)
	Link   string       // of Text, on the page
	Spark  []float64    // drawn on the page, in order
	Spans  [][2]float64 // of Spark: the interval of each value; nil: none
	Marks  []int        // of Spark: values to mark
}

// Caveats is the ID of the section that explains badges.
const Caveats = "summary"

// None is a value that does not exist or was not measured.
func None() Cell { return Cell{Text: "–", Faint: true} }

// NoneFor is None with the reason.
func NoneFor(reason string) Cell { return Cell{Text: "–", Faint: true, Title: reason} }

// Text is a cell of words.
func Text(text string) Cell { return Cell{Text: text} }

// Int is a whole number.
func Int(n int) Cell { return Cell{Text: Grouped(int64(n)), Value: strconv.Itoa(n)} }

// Value is a value of a unit (as in Format). NaN is no value.
func Value(v float64, unit string) Cell {
	if math.IsNaN(v) {
		return None()
	}
	return Cell{Text: Format(v, unit), Value: Exact(v), Title: strings.TrimSpace(Exact(v) + " " + unit)}
}

// Optional is a value that may not have been measured.
func Optional(v *float64, unit string) Cell {
	if v == nil {
		return None()
	}
	return Value(*v, unit)
}

// Add appends a row.
func (t *Table) Add(cells ...Cell) {
	for i := range cells { // a line feed in a name would look like the end of the table
		cells[i].Text = strings.TrimRight(lineFeeds.Replace(cells[i].Text), " ")
	}
	t.Rows = append(t.Rows, cells)
}

var lineFeeds = strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ", "\t", " ")

// Heading appends a heading within the table.
func (t *Table) Heading(text string) { t.Add(Cell{Text: text}) }

func (t *Table) heading(row []Cell) bool { return len(row) == 1 && len(t.Columns) > 1 }

// blank reports whether a cell has no value.
func (c Cell) blank() bool { return (c.Text == "" || c.Text == "–") && c.Sub == "" }

// on returns the table as one output shows it: without the columns of other outputs, without those that have no value,
// and without those of Differs that do not differ. It is empty if only columns that name rows have values.
func (t *Table) on(m Media) *Table {
	out := t.keep(func(i int, c Column) bool {
		if !c.On.has(m) {
			return false
		}
		used, texts := false, map[string]bool{}
		for _, row := range t.Rows {
			if t.heading(row) {
				continue
			}
			used = used || !row[i].blank()
			texts[row[i].Text] = true
		}
		return used && (!c.Differs || len(texts) > 1)
	})
	if n := len(out.Columns); n > 0 && n < len(t.Columns) && !slices.ContainsFunc(out.Columns[1:], func(c Column) bool { return !c.Row }) {
		return &Table{}
	}
	return out
}

// Empty reports whether an output shows nothing of the table.
func (t *Table) Empty(m Media) bool { return t.on(m).empty() }

// keep returns the table with the columns that want keeps.
func (t *Table) keep(want func(int, Column) bool) *Table {
	out := &Table{Title: t.Title, Note: t.Note, Intervals: t.Intervals}
	var kept []int
	for i, c := range t.Columns {
		if want(i, c) {
			kept = append(kept, i)
			out.Columns = append(out.Columns, c)
		}
	}
	for _, row := range t.Rows {
		if t.heading(row) {
			out.Rows = append(out.Rows, row)
			continue
		}
		cells := make([]Cell, len(kept))
		for j, i := range kept {
			cells[j] = row[i]
		}
		out.Rows = append(out.Rows, cells)
	}
	return out
}

// empty reports whether the table has no values.
func (t *Table) empty() bool {
	return len(t.Columns) == 0 || !slices.ContainsFunc(t.Rows, func(row []Cell) bool { return !t.heading(row) })
}

// short is the column's name on a terminal.
func (c Column) short() string {
	return cmp.Or(c.Short, LowerFirst(c.Name))
}

// spreadLegend explains ± below a table that has it.
const spreadLegend = "±: the wider half of the 95 % confidence interval"

// spreads reports whether a cell shows an interval as ±.
func (t *Table) spreads() bool {
	return t.Intervals && slices.ContainsFunc(t.Rows, func(row []Cell) bool {
		return slices.ContainsFunc(row, func(c Cell) bool { return strings.Contains(c.Text, "±") })
	})
}
