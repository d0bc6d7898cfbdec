package doc

import (
	"html"
	"image/color"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// content is the page of one section, without the parts that all pages share.
func content(t *testing.T, blocks ...Block) string {
	t.Helper()
	_, out, _ := strings.Cut(written(t, document(blocks...), (*Document).Page), "<h2></h2>\n")
	out, _, _ = strings.Cut(out, "</section>")
	return out
}

// tableContent is the page's table: its head, its rows and its end, each on a line.
func tableContent(t *testing.T, table *Table) string {
	t.Helper()
	table.Title = "Title"
	out := content(t, Block{Table: table})
	head := `<h3>Title</h3><p class="tools"><a href="#one-title" aria-label="Link to this table: Title">#&nbsp;link</a></p>
<div class="scroll" tabindex="0" role="group" aria-label="Title" id="one-title">`
	if !strings.HasPrefix(out, head) {
		t.Errorf("got %s, want first %s", out, head)
	}
	return strings.TrimSpace(strings.TrimPrefix(out, head)) + "\n"
}

var (
	evil  = `<script>alert("1")</script>`
	links = regexp.MustCompile(`href="([^"]*)"`)
)

// TestEscaping: names come from files of others. Only Block.HTML and Document.Footer are HTML.
func TestEscaping(t *testing.T) {
	marked := func(path string) string { return evil + path + "!" }
	out := written(t, filled(marked), (*Document).Page)
	for _, m := range regexp.MustCompile(regexp.QuoteMeta(evil)+`([^!]*)!`).FindAllStringSubmatch(out, -1) {
		if m[1] != "Sections.Blocks.HTML" && m[1] != "Footer" {
			t.Errorf("%s is not escaped", m[1])
		}
	}
	lacks(t, out, `&lt;script&gt;alert("`) // a quote would end an attribute

	// Every field is there, but those of the other outputs.
	shown := html.UnescapeString(out)
	for _, m := range links.FindAllStringSubmatch(out, -1) {
		link, err := url.PathUnescape(html.UnescapeString(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		shown += link
	}
	var missing []string
	filled(func(path string) string {
		if !strings.Contains(shown, marked(path)) && !strings.Contains(path, ".Tiles.") && !strings.HasSuffix(path, ".Places") {
			missing = append(missing, path[strings.LastIndex(path, ".")+1:])
		}
		return path
	})
	if want := []string{"Short", "Legend", "Group", "Terminal", "Markdown", "Narrow"}; !slices.Equal(missing, want) {
		t.Errorf("the page lacks %q, want %q", missing, want)
	}
}

// TestControlCharacters: a name cannot control the terminal on which a page or a summary is printed.
func TestControlCharacters(t *testing.T) {
	d := document(Block{Note: "a\x1b]0;title\a\u009bb"})
	for _, write := range []func(*Document, io.Writer) error{(*Document).Page, (*Document).Markdown} {
		out := written(t, d, write)
		contains(t, out, "a�]0;title��b")
	}
}

// TestScriptLinks: a file name cannot be a script.
func TestScriptLinks(t *testing.T) {
	lacks(t, content(t, Block{Plots: []Plot{{SVG: "javascript:alert(1)", PNG: "javascript:alert(2)"}}}), "alert")
}

// TestNavigation: sections without blocks for the page are neither in its navigation nor on it.
func TestNavigation(t *testing.T) {
	d := &Document{Kind: "kind", Title: "Title", Subtitle: "Subtitle", Footer: `<a href="x">link</a>`, Sections: []Section{
		{ID: "first", Title: "The first section", Short: "First", Blocks: []Block{{Note: "text"}}},
		{ID: "none", Title: "None"},
		{ID: "shell", Title: "Shell", Blocks: []Block{{On: Terminal | Markdown, Note: "text"}}},
		{ID: "blank", Title: "Blank", Blocks: []Block{{}, {Table: &Table{Columns: []Column{{Name: "n"}}}}}},
		{ID: "last", Title: "Last", Blocks: []Block{{HTML: "<i>text</i>"}}},
	}}
	out := written(t, d, (*Document).Page)
	contains(t, out, "<title>Title · synclab</title>", "<p class=\"over\">kind</p>\n<h1>Title</h1>\n<p class=\"soft\">Subtitle</p>\n", `<footer><a href="x">link</a></footer>`,
		`<nav aria-label="Sections"><a href="#first">First</a><a href="#last">Last</a></nav>`, `<section id="first"><h2>The first section</h2>`, `<section id="last">`)
	lacks(t, out, `id="none"`, `id="shell"`, `id="blank"`)
}

func TestSectionClasses(t *testing.T) {
	out := written(t, &Document{Sections: []Section{{ID: "one", Dense: true, NewSheet: true, Filter: true, Blocks: []Block{{Note: "text"}}}}}, (*Document).Page)
	contains(t, out, `<section id="one" class="narrow sheet many">`, `<input class="filter"`)
	lacks(t, written(t, document(Block{Note: "text"}), (*Document).Page), `<input class="filter"`, `<section id="one" class`)
}

// TestFolding: the reader opens a folded block; a warning is open at first. Both keep their note.
func TestFolding(t *testing.T) {
	table := &Table{Title: "Title", Columns: []Column{{Name: "n"}}, Rows: [][]Cell{{Int(1)}}}
	for _, test := range []struct{ name, got, want string }{
		{"plain", content(t, Block{Heading: "Heading", Note: "note"}), "<h3>Heading</h3><p>note</p>\n"},
		{"soft", content(t, Block{Note: "note", Soft: true}), `<p class="note">note</p>` + "\n"},
		{"folded", content(t, Block{Folded: true, Heading: "Heading", Note: "note"}), `<details class="cell"><summary>Heading</summary><p class="note">note</p></details>` + "\n"},
		{"warning", content(t, Block{Warn: true, Heading: "Heading", Note: "note"}), `<details class="warn" open><summary>Heading</summary><p class="note">note</p></details>` + "\n"},
		{"folded warning", content(t, Block{Folded: true, Warn: true, Heading: "Heading", List: []string{"one"}}),
			`<details class="warn"><summary>Heading</summary><ul class="list"><li>one</li></ul></details>` + "\n"},
	} {
		if test.got != test.want {
			t.Errorf("%s: %s, want %s", test.name, test.got, test.want)
		}
	}
	contains(t, content(t, Block{Table: table}), "<h3>Title</h3>")
	contains(t, content(t, Block{Folded: true, Table: table}), "<summary>Title</summary>")
}

// TestSortValues: the page sorts by full precision. A cell without a number has no sort value.
func TestSortValues(t *testing.T) {
	table := &Table{Columns: []Column{{Name: "Name"}, {Name: "n", Numeric: true}}}
	table.Add(Text("a"), Value(0.123456789, "s"))
	table.Add(Text("b"), Int(12345))
	table.Add(Text("c"), Cell{Text: "none", Value: "0", Loud: true})
	table.Add(Text("d"), NoneFor("not measured"))
	table.Add(Text("e"), Optional(nil, "s"))
	same(t, tableContent(t, table), `
<table class="sortable">
<caption>Title</caption>
<thead><tr><th scope="col">Name</th><th class="num" scope="col">n</th></tr></thead>
<tbody>
<tr><th scope="row">a</th><td data-v="0.123456789" title="0.123456789 s" class="num">123`+"\u00a0"+`ms</td></tr>
<tr><th scope="row">b</th><td data-v="12345" class="num">12,345</td></tr>
<tr><th scope="row">c</th><td data-v="0" class="loud num">none</td></tr>
<tr><th scope="row">d</th><td title="not measured" class="faint num">–</td></tr>
<tr><th scope="row">e</th><td class="faint num">–</td></tr>
</tbody></table></div>
`)
}

// TestPageHeadings: rows below a heading must keep their place, so the table is not sortable.
func TestPageHeadings(t *testing.T) {
	table := &Table{Note: "note", Columns: []Column{{Name: "Name"}, {Name: "n"}, {Name: "empty"}}}
	table.Heading("part")
	table.Add(Text("a"), Text("1"), None())
	same(t, tableContent(t, table), `
<table>
<caption>Title</caption>
<thead><tr><th scope="col">Name</th><th scope="col">n</th></tr></thead>
<tbody>
<tr><th scope="colgroup" colspan="2">part</th></tr>
<tr><th scope="row">a</th><td>1</td></tr>
</tbody></table></div><p class="note">note</p>
`)
}

// TestPageCells: cells and columns with colours, titles and small lines. A subject's name may break after the proxier.
func TestPageCells(t *testing.T) {
	red := color.NRGBA{R: 255, G: 1, A: 255}
	table := &Table{Columns: []Column{{Name: "kube-proxy/nftables", Color: red, Title: "explained"}}}
	table.Add(Cell{Text: "3 s", Sub: "4 s", Color: red, Terminal: "shell", Narrow: "narrow", Markdown: "request"})
	same(t, tableContent(t, table), `
<table class="sortable">
<caption>Title</caption>
<thead><tr><th title="explained" scope="col" style="border-top:3px solid #ff0100">kube-proxy/
nftables</th></tr></thead>
<tbody>
<tr><th scope="row"><span class="named"><i class="swatch" style="background:#ff0100"></i><span>3`+"\u00a0"+`s</span></span><small>4`+"\u00a0"+`s</small></th></tr>
</tbody></table></div>
`)
}

// TestPlots: the page sets the width of an inlined plot, and links to its files.
func TestPlots(t *testing.T) {
	plot := Plot{Name: "p", Title: `a "title"`, Caption: "caption", SVG: "p.svg", Markup: []byte(`<?xml version="1.0"?>` + "\n" + `<svg width="5in" height="6in" viewBox="0 0 1 1"></svg>`)}
	out := content(t, Block{Plots: []Plot{plot}})
	contains(t, out, `<div class="figures one">`, `<figure id="p"><div class="plot" tabindex="0" role="group" aria-label="a &#34;title&#34;"><svg role="img" aria-label="a &#34;title&#34;" viewBox="0 0 1 1"></svg></div>`, `<a href="p.svg">SVG</a>`)
	lacks(t, out, "<?xml", "5in", "PNG")
	plot.PNG = "p.png"
	contains(t, content(t, Block{Plots: []Plot{plot, plot}}), `<div class="figures">`, `<a href="p.png">PNG</a>`)
}

// TestPageOrder: the pieces of a block stand in the order of its fields.
func TestPageOrder(t *testing.T) {
	b := Block{Heading: "Heading", Note: "note", HTML: "<b>html</b>", Table: &Table{Columns: []Column{{Name: "n"}}, Rows: [][]Cell{{Int(1)}}},
		Facts: [][2]string{{"term", "1 s"}}, List: []string{"one", "two"}, Code: "a < b"}
	out := content(t, b)
	at := 0
	for _, want := range []string{"<h3>Heading</h3>", "<p>note</p>", "<b>html</b>", "<table", "<dl><dt>term</dt><dd>1\u00a0s</dd></dl>", `<ul class="list"><li>one</li><li>two</li></ul>`, `<pre tabindex="0">a &lt; b</pre>`} {
		i := strings.Index(out[at:], want)
		if i < 0 {
			t.Fatalf("%q is missing or too early in:\n%s", want, out)
		}
		at += i
	}
}
