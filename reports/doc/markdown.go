package doc

import (
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
)

// Markdown writes the document for a pull request.
func (d *Document) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n", mark(d.Title, false))
	if d.Subtitle != "" {
		fmt.Fprintf(&b, "\n%s\n", mark(d.Subtitle, true))
	}
	for _, s := range d.Sections {
		s.markdown(&b)
	}
	_, err := io.WriteString(visible{w}, plain(b.String()))
	return err
}

// markdown writes a section. Its title is left out if a table's title follows at once.
func (s Section) markdown(b *strings.Builder) {
	blocks := s.blocks(Markdown)
	if len(blocks) == 0 {
		return
	}
	first := blocks[0]
	if s.Title != "" && !first.Folded && first.Heading == "" && len(first.Verdict) == 0 && (first.Note != "" || first.title(Markdown) == "") {
		fmt.Fprintf(b, "\n### %s\n", mark(s.Title, false))
	}
	for _, block := range blocks {
		block.markdown(b)
	}
}

func (block Block) markdown(b *strings.Builder) {
	heading := block.title(Markdown)
	switch {
	case block.Folded:
		fmt.Fprintf(b, "\n<details><summary>%s</summary>\n", html.EscapeString(strings.Join(strings.Fields(heading), " ")))
		defer b.WriteString("\n</details>\n")
	case heading != "":
		fmt.Fprintf(b, "\n### %s\n", mark(heading, false))
	}
	if len(block.Verdict) > 0 {
		b.WriteString("\n")
	}
	for _, one := range block.Verdict {
		fmt.Fprintf(b, "- **%s**\n", mark(one.text(), false))
	}
	if block.Note != "" {
		fmt.Fprintf(b, "\n%s\n", mark(block.Note, true))
	}
	if block.Table != nil {
		block.Table.markdown(b)
	}
	if len(block.Facts)+len(block.List) > 0 {
		b.WriteString("\n")
	}
	for _, fact := range block.Facts {
		fmt.Fprintf(b, "- %s: %s\n", mark(fact[0], true), mark(fact[1], false))
	}
	for _, one := range block.List {
		fmt.Fprintf(b, "- %s\n", mark(one, true))
	}
	if block.Code != "" {
		fence := strings.Repeat("`", max(3, 1+longest(block.Code)))
		fmt.Fprintf(b, "\n%s\n%s\n%s\n", fence, block.Code, fence)
	}
}

// mostColumns is the number of columns of a table in Markdown. A page of a repository has no room for more.
const mostColumns = 10

// parts are the columns of each table that Markdown makes of this one. Those that name the row begin each.
func (t *Table) parts() (parts [][]int) {
	var all, names, rest []int
	for i, c := range t.Columns {
		all = append(all, i)
		if i == 0 || c.Row {
			names = append(names, i)
		} else {
			rest = append(rest, i)
		}
	}
	room := mostColumns - len(names)
	if len(all) <= mostColumns || room < 1 {
		return [][]int{all}
	}
	tables := (len(rest) + room - 1) / room
	for some := range slices.Chunk(rest, (len(rest)+tables-1)/tables) {
		parts = append(parts, slices.Concat(names, some))
	}
	return parts
}

func (t *Table) markdown(b *strings.Builder) {
	t = t.on(Markdown)
	if t.empty() {
		return
	}
	for _, columns := range t.parts() {
		t.markdownOf(b, columns)
	}
	note := t.Note
	if t.spreads() {
		note = strings.TrimSpace(note + " " + spreadLegend + ".")
	}
	if note != "" {
		fmt.Fprintf(b, "\n%s\n", mark(note, true))
	}
}

// markdownOf writes some columns.
func (t *Table) markdownOf(b *strings.Builder, columns []int) {
	b.WriteString("\n")
	line := func(cell func(int) string) {
		for _, i := range columns {
			fmt.Fprintf(b, "| %s ", strings.ReplaceAll(cell(i), "|", `\|`))
		}
		b.WriteString("|\n")
	}
	line(func(i int) string {
		name := LowerFirst(t.Columns[i].Name)
		same := func(c Column) bool { return c.Name == t.Columns[i].Name && c.Group != t.Columns[i].Group }
		if slices.ContainsFunc(t.Columns, same) { // its group tells it from others, which a page shows above
			name += ", " + t.Columns[i].Group
		}
		return mark(name, false)
	})
	line(func(int) string { return "---" })
	for _, row := range t.Rows {
		if t.heading(row) {
			line(func(i int) string {
				if i > 0 {
					return ""
				}
				return "**" + mark(row[0].Text, false) + "**"
			})
			continue
		}
		line(func(i int) string { return mark(row[i].markdown(), false) })
	}
}

// markdown is a cell on one line: "3.31 s (1.5× faster, 1.2–1.8×)".
func (c Cell) markdown() string {
	switch {
	case c.Markdown != "":
		return c.Markdown
	case c.Sub == "":
		return c.Text
	}
	return c.Text + " (" + strings.ReplaceAll(c.Sub, "\n", ", ") + ")"
}
