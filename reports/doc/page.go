package doc

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"image/color"
	"io"
	"regexp"
	"strings"
)

//go:embed page.html.tmpl
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"blocks":   func(s Section) []Block { return s.blocks(Page) },
	"table":    func(t *Table) *Table { return t.on(Page) },
	"heading":  func(t *Table, row []Cell) bool { return t.heading(row) },
	"sortable": (*Table).sortable,
	"unparted": Unparted,
	"swatch":   swatch,
	"markup":   Plot.inline,
	"trusted":  func(text string) template.HTML { return template.HTML(text) }, //nolint:gosec // Document.Footer and Block.HTML are written by this program
	"head":     Column.head,
	"class":    Column.class,
}).Parse(pageText))

// Page writes the document as a page without outside references.
func (d *Document) Page(w io.Writer) error {
	shown := *d
	shown.Sections = nil
	for _, s := range d.Sections {
		if len(s.blocks(Page)) > 0 {
			shown.Sections = append(shown.Sections, s)
		}
	}
	return pageTemplate.Execute(w, shown)
}

// sortable reports whether the rows may change places.
func (t *Table) sortable() bool {
	for _, row := range t.Rows {
		if t.heading(row) {
			return false
		}
	}
	return true
}

// Nav is the section's name in the navigation.
func (s Section) Nav() string {
	if s.Short != "" {
		return s.Short
	}
	return s.Title
}

// Class is the CSS classes of the section.
func (s Section) Class() string {
	var out []string
	for _, one := range []struct {
		name string
		set  bool
	}{{"narrow", s.Dense}, {"sheet", s.NewSheet}, {"many", s.Filter}} {
		if one.set {
			out = append(out, one.name)
		}
	}
	return strings.Join(out, " ")
}

// Summary is the heading above the block, and what stays of a folded one.
func (b Block) Summary() string { return b.title(Page) }

// head is the column's name. In a narrow column, a subject's may break after the proxier's name: browsers break at
// hyphens anyway.
func (c Column) head() string {
	if c.Color != (color.NRGBA{}) {
		return strings.Replace(c.Name, "/", "/\n", 1)
	}
	return Unparted(c.Name)
}

// class is the CSS classes of a cell in the column.
func (c Column) class(cell Cell) string {
	var out []string
	for _, one := range []struct {
		name string
		set  bool
	}{{"faint", cell.Faint}, {"loud", cell.Loud}, {"num", c.Numeric}} {
		if one.set {
			out = append(out, one.name)
		}
	}
	return strings.Join(out, " ")
}

// swatch is a colour in CSS; empty for none.
func swatch(c color.NRGBA) template.CSS {
	if c == (color.NRGBA{}) {
		return ""
	}
	return template.CSS(fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B)) //nolint:gosec // three numbers
}

var svgSize = regexp.MustCompile(`<svg width="[^"]*" height="[^"]*"`)

// inline removes the XML head of the plot's SVG and lets the page set the width. vgsvg escapes all texts.
func (p Plot) inline() template.HTML {
	markup := p.Markup
	if i := bytes.Index(markup, []byte("<svg")); i >= 0 {
		markup = markup[i:]
	}
	open := fmt.Sprintf(`<svg role="img" aria-label="%s"`, template.HTMLEscapeString(p.Title))
	return template.HTML(svgSize.ReplaceAllLiteral(markup, []byte(open))) //nolint:gosec // drawn by this program
}
