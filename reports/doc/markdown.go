package doc

import (
	"fmt"
	"html"
	"io"
	"strings"
)

// Markdown writes the document for a pull request.
func (d *Document) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n", d.Title)
	if d.Subtitle != "" {
		fmt.Fprintf(&b, "\n%s\n", d.Subtitle)
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
		fmt.Fprintf(b, "\n### %s\n", s.Title)
	}
	for _, block := range blocks {
		block.markdown(b)
	}
}

func (block Block) markdown(b *strings.Builder) {
	heading := block.title(Markdown)
	switch {
	case block.Folded:
		fmt.Fprintf(b, "\n<details><summary>%s</summary>\n", html.EscapeString(heading))
		defer b.WriteString("\n</details>\n")
	case heading != "":
		fmt.Fprintf(b, "\n### %s\n", heading)
	}
	if len(block.Verdict) > 0 {
		b.WriteString("\n")
	}
	for _, one := range block.Verdict {
		fmt.Fprintf(b, "- **%s**\n", one.text())
	}
	if block.Note != "" {
		fmt.Fprintf(b, "\n%s\n", block.Note)
	}
	if block.Table != nil {
		block.Table.markdown(b)
	}
	if len(block.Facts)+len(block.List) > 0 {
		b.WriteString("\n")
	}
	for _, fact := range block.Facts {
		fmt.Fprintf(b, "- %s: %s\n", fact[0], fact[1])
	}
	for _, one := range block.List {
		fmt.Fprintf(b, "- %s\n", strings.Join(strings.Fields(one), " "))
	}
	if block.Code != "" {
		fmt.Fprintf(b, "\n```\n%s\n```\n", block.Code)
	}
}

func (t *Table) markdown(b *strings.Builder) {
	t = t.on(Markdown)
	if t.empty() {
		return
	}
	b.WriteString("\n")
	line := func(cell func(int) string) {
		for i := range t.Columns {
			fmt.Fprintf(b, "| %s ", strings.ReplaceAll(cell(i), "|", "\\|"))
		}
		b.WriteString("|\n")
	}
	line(func(i int) string { return LowerFirst(t.Columns[i].Name) })
	line(func(int) string { return "---" })
	for _, row := range t.Rows {
		if t.heading(row) {
			line(func(i int) string {
				if i > 0 {
					return ""
				}
				return "**" + row[0].Text + "**"
			})
			continue
		}
		line(func(i int) string { return row[i].markdown() })
	}
	note := t.Note
	if t.spreads() {
		note = strings.TrimSpace(note + " " + spreadLegend + ".")
	}
	if note != "" {
		fmt.Fprintf(b, "\n%s\n", note)
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
