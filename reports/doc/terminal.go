package doc

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Width is the width of text in columns, where the writer does not know its own. Wider tables use short texts, and then
// leave out columns.
const Width = 110

// leastWidth is the narrowest terminal that text is made for, mostWidth the widest.
const leastWidth, mostWidth = 60, 200

// space is the room for text. On a terminal, a table that is still too wide becomes several. Elsewhere lines may be
// longer, since other programs may read them.
type space struct {
	width    int
	terminal bool
}

// spaceOf is the space that w has: a terminal knows its Columns.
func spaceOf(w io.Writer) space {
	if terminal, ok := w.(interface{ Columns() int }); ok && terminal.Columns() > 0 {
		return space{min(max(terminal.Columns(), leastWidth), mostWidth), true}
	}
	return space{width: Width}
}

// wrap breaks a text into lines, of at most Width.
func (s space) wrap(text string) string { return Wrap(text, min(s.width, Width), "  ") }

// Text writes the document for a terminal.
func (d *Document) Text(w io.Writer) error {
	var b strings.Builder
	room := spaceOf(w)
	if d.Title != "" {
		b.WriteString(room.wrap(d.Title) + "\n")
	}
	for _, s := range d.Sections {
		s.text(&b, room)
	}
	_, err := io.WriteString(w, plain(b.String()))
	return err
}

// text writes a section. Its title is left out if a table's title follows at once.
func (s Section) text(b *strings.Builder, room space) {
	blocks := s.blocks(Terminal)
	if len(blocks) == 0 {
		return
	}
	if first := blocks[0]; s.Title != "" && !first.Warn && first.Heading == "" && len(first.Verdict) == 0 && (first.Note != "" || first.title(Terminal) == "") {
		b.WriteString("\n" + room.wrap(s.Title) + "\n")
	}
	tables, tails := make([]string, len(blocks)), make([]string, len(blocks))
	for i, block := range blocks {
		if block.Table != nil {
			tables[i], tails[i] = block.Table.text(room)
		}
	}
	for i, block := range blocks {
		if slices.Contains(tails[i+1:], tails[i]) {
			tails[i] = "" // of several tables with the same explanation, the last one has it
		}
		block.text(b, tables[i]+tails[i], room)
	}
}

// text writes a block with the text of its table.
func (block Block) text(b *strings.Builder, table string, room space) {
	line := func(text string) { b.WriteString(room.wrap(text) + "\n") }
	if block.Heading != "" {
		b.WriteString("\n")
		line(block.Heading)
	}
	if len(block.Verdict) > 0 {
		b.WriteString("\n")
	}
	for _, one := range block.Verdict {
		line(one.text())
	}
	if block.Note != "" {
		b.WriteString("\n")
		line(block.Note)
	}
	b.WriteString(table)
	if len(block.Facts)+len(block.List) > 0 {
		b.WriteString("\n")
	}
	for _, fact := range block.Facts {
		line(fact[0] + ": " + fact[1])
	}
	for _, one := range block.List {
		if block.Warn {
			line("warning: " + one)
		} else {
			line("- " + one)
		}
	}
	if block.Code != "" {
		b.WriteString("\n  " + strings.ReplaceAll(block.Code, "\n", "\n  ") + "\n")
	}
}

// text returns the table with its title, and what explains it: the legends of its columns and its note.
func (t *Table) text(room space) (table, tail string) {
	shown := t.on(Terminal).headed()
	if shown.empty() {
		return "", ""
	}
	parts, short := fitting(shown, room)
	return t.body(parts, short, room), t.tail(parts, room)
}

func (t *Table) body(parts []*Table, short bool, room space) string {
	var b strings.Builder
	b.WriteString("\n")
	if t.Title != "" {
		b.WriteString(room.wrap(t.Title) + "\n\n")
	}
	for i, part := range parts {
		if i > 0 {
			b.WriteString("\n")
		}
		if group := part.Columns[len(part.Columns)-1].Group; group != "" && short {
			b.WriteString(group + "\n")
		}
		part.write(&b, room.width)
	}
	return b.String()
}

func (t *Table) tail(parts []*Table, room space) string {
	var b strings.Builder
	var legends []string
	for _, part := range parts {
		for _, c := range part.Columns {
			if c.Legend != "" && !slices.Contains(legends, c.Legend) {
				legends = append(legends, c.Legend)
			}
		}
	}
	if slices.ContainsFunc(parts, (*Table).spreads) {
		legends = append(legends, spreadLegend)
	}
	if len(legends) > 0 {
		b.WriteString("\n" + room.wrap(strings.Join(legends, "; ")) + "\n")
	}
	if t.Note != "" {
		if len(legends) == 0 {
			b.WriteString("\n")
		}
		b.WriteString(room.wrap(t.Note) + "\n")
	}
	return b.String()
}

// headed replaces the columns Above by headings within the table.
func (t *Table) headed() *Table {
	out := t.keep(func(_ int, c Column) bool { return !c.Above })
	if len(out.Columns) == len(t.Columns) {
		return t
	}
	rows, above := out.Rows, ""
	out.Rows = nil
	for i, row := range t.Rows {
		var values []string
		for j, c := range t.Columns {
			if c.Above && !t.heading(row) {
				values = append(values, row[j].Text)
			}
		}
		if next := strings.Join(values, " "); next != "" && next != above {
			above = next
			out.Heading(above)
		}
		out.Rows = append(out.Rows, rows[i])
	}
	return out
}

// fitting makes a table narrow enough: short texts and names, fewer columns, or several tables. A first column alone may
// be as wide as it is: two names cut in the middle may look alike.
func fitting(t *Table, room space) (parts []*Table, short bool) {
	if whole := t.printed(false); whole.width() <= room.width {
		return []*Table{whole}, false
	}
	t = t.printed(true)
	for t.width() > room.width {
		most := 0
		for _, c := range t.Columns {
			most = max(most, c.Spare)
		}
		if most == 0 {
			break
		}
		t = t.keep(func(_ int, c Column) bool { return c.Spare != most })
	}
	if (t.width() <= room.width || !room.terminal) && !slices.ContainsFunc(t.Columns, func(c Column) bool { return c.Group != "" }) {
		return []*Table{t}, true
	}
	// A table of groups is always split: short names are unique within a group only.
	from := 1
	for from < len(t.Columns) && t.Columns[from].Row {
		from++
	}
	if from == len(t.Columns) {
		return []*Table{t}, true
	}
	names := from // these columns are in every part
	for from < len(t.Columns) {
		part := func(to int) *Table {
			return t.keep(func(i int, _ Column) bool { return i < names || i >= from && i < to })
		}
		to := from + 1
		for to < len(t.Columns) && t.Columns[to].Group == t.Columns[from].Group && part(to+1).width() <= room.width {
			to++
		}
		parts = append(parts, part(to))
		from = to
	}
	return parts, true
}

var spread = regexp.MustCompile(` ± (\d+) %`)

// printed returns the table with the texts of a terminal in Text and Name.
func (t *Table) printed(narrow bool) *Table {
	out := t.keep(func(int, Column) bool { return true })
	for i := range out.Columns {
		if out.Columns[i].Group == "" || narrow {
			out.Columns[i].Name = out.Columns[i].short()
		}
	}
	for _, row := range out.Rows {
		if out.heading(row) {
			continue
		}
		for i, c := range row {
			switch {
			case narrow && c.Narrow != "":
				row[i].Text = c.Narrow
			case c.Terminal != "":
				row[i].Text = c.Terminal
			}
			row[i].Text = spread.ReplaceAllString(plain(row[i].Text), " ±$1%")
		}
	}
	return out
}

// widths returns the widths of the columns of a printed table.
func (t *Table) widths() []int {
	widths := make([]int, len(t.Columns))
	for i, c := range t.Columns {
		widths[i] = utf8.RuneCountInString(c.Name)
	}
	for _, row := range t.Rows {
		if t.heading(row) {
			continue
		}
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.Text))
		}
	}
	return widths
}

func (t *Table) width() int {
	total := -2
	for _, w := range t.widths() {
		total += w + 2
	}
	return total
}

// write aligns the first column left and the others right.
func (t *Table) write(b *strings.Builder, width int) {
	widths := t.widths()
	line := func(cell func(int) string) {
		text := fmt.Sprintf("%-*s", widths[0], cell(0))
		for i := 1; i < len(widths); i++ {
			text += fmt.Sprintf("  %*s", widths[i], cell(i))
		}
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	line(func(i int) string { return t.Columns[i].Name })
	for _, row := range t.Rows {
		if t.heading(row) {
			b.WriteString(Shorten(row[0].Text, width) + "\n")
			continue
		}
		line(func(i int) string { return row[i].Text })
	}
}
