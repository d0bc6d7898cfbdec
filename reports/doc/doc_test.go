package doc

import (
	"html"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// outputs are the three renderers. columns returns the column names of the output's only table.
var outputs = []struct {
	name    string
	media   Media
	write   func(*Document, io.Writer) error
	columns func(out string) []string
}{
	{"page", Page, (*Document).Page, pageColumns},
	{"terminal", Terminal, (*Document).Text, terminalColumns},
	{"markdown", Markdown, (*Document).Markdown, markdownColumns},
}

func written(t *testing.T, d *Document, write func(*Document, io.Writer) error) string {
	t.Helper()
	var b strings.Builder
	if err := write(d, &b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// document has one section without a title.
func document(blocks ...Block) *Document {
	return &Document{Sections: []Section{{ID: "one", Blocks: blocks}}}
}

// same compares whole texts. A line break at the start of want is for the reader.
func same(t *testing.T, got, want string) {
	t.Helper()
	if want = strings.TrimPrefix(want, "\n"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// body is a page without its style and its script.
func body(out string) string {
	if _, page, ok := strings.Cut(out, "<body>\n"); ok {
		out, _, _ = strings.Cut(page, "<script>\n(function")
	}
	return out
}

func contains(t *testing.T, out string, all ...string) {
	t.Helper()
	for _, want := range all {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in:\n%s", want, body(out))
		}
	}
}

func lacks(t *testing.T, out string, all ...string) {
	t.Helper()
	for _, never := range all {
		if strings.Contains(out, never) {
			t.Errorf("%q is in:\n%s", never, body(out))
		}
	}
}

var columnHead = regexp.MustCompile(`<th[^>]*scope="col"[^>]*>([^<]*)</th>`)

func pageColumns(out string) []string {
	var names []string
	for _, m := range columnHead.FindAllStringSubmatch(out, -1) {
		names = append(names, html.UnescapeString(m[1]))
	}
	return names
}

func terminalColumns(out string) []string {
	line, _, _ := strings.Cut(strings.TrimLeft(out, "\n"), "\n")
	if line == "" {
		return nil
	}
	return regexp.MustCompile(` {2,}`).Split(line, -1)
}

func markdownColumns(out string) []string {
	_, table, ok := strings.Cut(out, "\n| ")
	if !ok {
		return nil
	}
	line, _, _ := strings.Cut(table, " |\n")
	return strings.Split(line, " | ")
}

// TestBlocksOn: an output has the blocks and the columns that are marked for it.
func TestBlocksOn(t *testing.T) {
	marked := map[string]Media{"everywhere": 0, "screen": Page, "shell": Terminal, "request": Markdown, "short": Terminal | Markdown}
	var blocks []Block
	for text, on := range marked {
		blocks = append(blocks, Block{On: on, Note: text})
	}
	for _, o := range outputs {
		out := written(t, document(blocks...), o.write)
		for text, on := range marked {
			if got, want := strings.Contains(out, text+"\n") || strings.Contains(out, ">"+text+"<"), on == 0 || on&o.media != 0; got != want {
				t.Errorf("%s: the block for %q is shown: %v", o.name, text, got)
			}
		}
	}
}

// TestPageOnlyContent: plots and HTML are no content of the other outputs, so their section has no title there.
func TestPageOnlyContent(t *testing.T) {
	d := &Document{Sections: []Section{{ID: "plots", Title: "Plots", Blocks: []Block{{Plots: []Plot{{Name: "p"}}}, {HTML: "<b>html</b>"}}}}}
	for _, o := range outputs {
		out := written(t, d, o.write)
		if got := strings.Contains(out, "Plots"); got != (o.media == Page) {
			t.Errorf("%s: the section is shown: %v", o.name, got)
		}
	}
}

func TestColumns(t *testing.T) {
	columns := func(more ...Column) []Column { return append([]Column{{Name: "name"}}, more...) }
	for _, test := range []struct {
		name                     string
		columns                  []Column
		rows                     [][]Cell
		page, terminal, markdown []string
	}{
		{"of one output", columns(Column{Name: "p", On: Page}, Column{Name: "t", On: Terminal}, Column{Name: "m", On: Markdown}),
			[][]Cell{{Text("a"), Int(1), Int(2), Int(3)}}, []string{"name", "p"}, []string{"name", "t"}, []string{"name", "m"}},
		{"without values", columns(Column{Name: "empty"}, Column{Name: "none"}, Column{Name: "zero"}),
			[][]Cell{{Text("a"), {}, None(), Int(0)}, {Text("b"), {}, NoneFor("not measured"), Int(0)}},
			[]string{"name", "zero"}, []string{"name", "zero"}, []string{"name", "zero"}},
		{"with a value in one row", columns(Column{Name: "once"}), [][]Cell{{Text("a"), None()}, {Text("b"), Int(1)}},
			[]string{"name", "once"}, []string{"name", "once"}, []string{"name", "once"}},
		{"with a small line only", columns(Column{Name: "sub"}), [][]Cell{{Text("a"), {Sub: "below"}}},
			[]string{"name", "sub"}, []string{"name", "sub"}, []string{"name", "sub"}},
		{"that do not differ", columns(Column{Name: "same", Differs: true}, Column{Name: "other", Differs: true}),
			[][]Cell{{Text("a"), Int(1), Int(2)}, {Text("b"), Int(1), Int(3)}}, []string{"name", "other"}, []string{"name", "other"}, []string{"name", "other"}},
		{"above the rows", columns(Column{Name: "above", Above: true}, Column{Name: "n"}), [][]Cell{{Text("a"), Text("x"), Int(1)}},
			[]string{"name", "above", "n"}, []string{"name", "n"}, []string{"name", "above", "n"}},
		{"beside headings", columns(Column{Name: "same", Differs: true}, Column{Name: "n"}), [][]Cell{{Text("heading")}, {Text("a"), Int(1), Int(2)}, {Text("b"), Int(1), Int(2)}},
			[]string{"name", "n"}, []string{"name", "n"}, []string{"name", "n"}},
		{"with the first column only", columns(Column{Name: "none"}), [][]Cell{{Text("a"), None()}}, nil, nil, nil},
		{"with headings only", columns(Column{Name: "n"}), [][]Cell{{Text("heading")}}, nil, nil, nil},
		{"one column", []Column{{Name: "name"}}, [][]Cell{{Text("a")}}, []string{"name"}, []string{"name"}, []string{"name"}},
	} {
		want := map[Media][]string{Page: test.page, Terminal: test.terminal, Markdown: test.markdown}
		for _, o := range outputs {
			out := written(t, document(Block{Table: &Table{Columns: test.columns, Rows: test.rows}}), o.write)
			if got := o.columns(out); !slices.Equal(got, want[o.media]) {
				t.Errorf("%s, %s: columns %q, want %q", test.name, o.name, got, want[o.media])
			}
		}
	}
}

// TestEmptyTable: a table without values has no title, and a section with nothing else has none either.
func TestEmptyTable(t *testing.T) {
	empty := &Table{Title: "Title of nothing", Note: "note of nothing", Columns: []Column{{Name: "name"}, {Name: "n", Legend: "legend of nothing"}}, Rows: [][]Cell{{Text("a"), None()}}}
	for _, o := range outputs {
		for _, block := range []Block{{Table: empty}, {Table: empty, List: []string{"list"}}} {
			out := written(t, &Document{Sections: []Section{{ID: "one", Title: "The section", Blocks: []Block{block}}}}, o.write)
			lacks(t, out, "of nothing")
			if got := strings.Contains(out, "The section"); got != (block.List != nil) {
				t.Errorf("%s: the section has a title: %v", o.name, got)
			}
		}
	}
}

// TestSectionTitles: terminal and Markdown omit a section's title if another title, a warning or a fold follows at once.
func TestSectionTitles(t *testing.T) {
	table := &Table{Title: "Table", Columns: []Column{{Name: "n"}}, Rows: [][]Cell{{Int(1)}}}
	for _, test := range []struct {
		name               string
		first              Block
		terminal, markdown bool
	}{
		{"note", Block{Note: "note"}, true, true},
		{"heading", Block{Heading: "Heading", Note: "note"}, false, false},
		{"title of a table", Block{Table: table}, false, false},
		{"note above a table", Block{Note: "note", Table: table}, true, true},
		{"warning", Block{Warn: true, List: []string{"one"}}, false, true},
		{"folded", Block{Folded: true, List: []string{"one"}}, true, false},
	} {
		want := map[Media]bool{Page: true, Terminal: test.terminal, Markdown: test.markdown}
		for _, o := range outputs {
			out := written(t, &Document{Sections: []Section{{ID: "one", Title: "Section", Blocks: []Block{test.first, {Note: "after"}}}}}, o.write)
			if got := strings.Contains(out, "\nSection\n") || strings.Contains(out, "\n### Section\n") || strings.Contains(out, "<h2>Section</h2>"); got != want[o.media] {
				t.Errorf("%s, %s: the section's title is shown: %v", test.name, o.name, got)
			}
		}
	}
}

// fill sets every text in v to text(path). Slices get one element; markup stays empty.
func fill(v reflect.Value, path string, text func(path string) string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text(strings.TrimPrefix(path, ".")))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), path, text)
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0), path, text)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), path+"["+string(rune('0'+i))+"]", text)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), path+"."+v.Type().Field(i).Name, text)
		}
	}
}

// filled is a document with a text in every field, in blocks that show all fields: with a heading, with the table's
// title, with a heading within the table, a warning, and folded.
func filled(text func(path string) string) *Document {
	d := &Document{}
	fill(reflect.ValueOf(d).Elem(), "", text)
	s := &d.Sections[0]
	s.Blocks[0].Plots[0].Markup = []byte(`<?xml version="1.0"?><svg width="5" height="6"></svg>`)
	s.Blocks[0].Plots[0].Places = "<rect/>"
	whole := s.Blocks[0]
	titled, within, warning, folded := whole, whole, whole, whole
	titled.Heading = ""
	t := *whole.Table
	t.Columns = append([]Column{{Name: "first"}}, t.Columns...)
	t.Rows = [][]Cell{{Text(text("heading within the table"))}, {Text("first"), t.Rows[0][0]}}
	within.Table = &t
	warning.Warn, folded.Folded = true, true
	s.Blocks = []Block{whole, titled, within, warning, folded}
	return d
}

// TestNonBreaking: only the page has non-breaking spaces, whichever field they are in.
func TestNonBreaking(t *testing.T) {
	for _, o := range outputs {
		out := written(t, filled(func(path string) string { return path + " 1\u00a0s" }), o.write)
		if got := strings.Contains(out, "\u00a0"); got != (o.media == Page) {
			t.Errorf("%s has non-breaking spaces: %v", o.name, got)
		}
	}
}
