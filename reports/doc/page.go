package doc

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"image/color"
	"io"
	"regexp"
	"strings"
)

var (
	//go:embed page.html.tmpl
	pageText string
	//go:embed page.css
	pageCSS template.CSS
	//go:embed page.js
	pageJS template.JS
	//go:embed live.js
	liveJS template.JS
)

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"css":      func() template.CSS { return pageCSS },
	"js":       func() template.JS { return pageJS },
	"livejs":   func() template.JS { return liveJS },
	"dark":     (*Document).dark,
	"blocks":   Section.placed,
	"table":    func(t *Table) *Table { return t.on(Page) },
	"heading":  func(t *Table, row []Cell) bool { return t.heading(row) },
	"sortable": (*Table).sortable,
	"unparted": Unparted,
	"swatch":   swatch,
	"markup":   Plot.inline,
	"spark":    spark,
	"caveats":  func() string { return Caveats },
	"trusted":  func(text string) template.HTML { return template.HTML(text) }, //nolint:gosec // Document.Footer and Block.HTML are written by this program
	"head":     Column.head,
	"class":    Column.class,
}).Parse(pageText))

// Page writes the document as a page without outside references.
func (d *Document) Page(w io.Writer) error { return d.execute(w, "page") }

// PageSections writes only the sections of the page, for a page that is Live.
func (d *Document) PageSections(w io.Writer) error { return d.execute(w, "sections") }

func (d *Document) execute(w io.Writer, name string) error {
	shown := *d
	shown.Sections = nil
	for _, s := range d.Sections {
		if len(s.blocks(Page)) > 0 {
			shown.Sections = append(shown.Sections, s)
		}
	}
	return pageTemplate.ExecuteTemplate(visible{w}, name, &shown)
}

// visible replaces control characters, which names in files of others may contain. Each write has whole characters.
type visible struct{ w io.Writer }

// Write implements io.Writer.
func (v visible) Write(b []byte) (int, error) {
	_, err := io.WriteString(v.w, Visible(string(b)))
	return len(b), err
}

// placed is a block with the anchor and the caption of its table.
type placed struct {
	Block
	Anchor, Caption string
}

// placed returns the blocks for the page.
func (s Section) placed() []placed {
	var out []placed
	used := map[string]int{}
	for _, b := range s.blocks(Page) {
		one := placed{Block: b}
		if b.Table != nil && b.Table.Empty(Page) {
			one.Table = nil
		}
		if one.Table != nil {
			title := cmp.Or(b.title(Page), b.Table.Title)
			one.Caption = cmp.Or(title, s.Title)
			one.Anchor = s.ID + "-" + cmp.Or(slug(title), "table")
			used[one.Anchor]++
			if n := used[one.Anchor]; n > 1 {
				one.Anchor += fmt.Sprintf("-%d", n)
				one.Caption += fmt.Sprintf(", table %d", n)
			}
		}
		out = append(out, one)
	}
	return out
}

var noSlug = regexp.MustCompile(`[^a-z0-9]+`)

// slug is a text as a part of an anchor.
func slug(text string) string {
	return strings.Trim(noSlug.ReplaceAllString(strings.ToLower(text), "-"), "-")
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
	return cmp.Or(s.Short, s.Title)
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
	switch {
	case cell.Heat < 0:
		out = append(out, fmt.Sprintf("better%d", -cell.Heat))
	case cell.Heat > 0:
		out = append(out, fmt.Sprintf("worse%d", cell.Heat))
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
