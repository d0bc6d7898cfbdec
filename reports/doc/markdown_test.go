package doc

import (
	"fmt"
	"testing"
)

func markdown(t *testing.T, blocks ...Block) string {
	t.Helper()
	return written(t, document(blocks...), (*Document).Markdown)
}

func TestMarkdown(t *testing.T) {
	table := &Table{Title: "The table", Note: "Its note.", Columns: []Column{{Name: "Name"}, {Name: "Full | sync"}, {Name: "Empty"}}}
	table.Heading("part")
	table.Add(Text("a|b"), Cell{Text: "1 s", Sub: "first\nsecond"}, None())
	table.Add(Text("c"), Cell{Text: "2 s", Sub: "left out", Markdown: "two | seconds", Terminal: "shell"}, None())
	d := &Document{Kind: "kind", Title: "Title", Subtitle: "Subtitle", Footer: "footer", Sections: []Section{
		{Title: "Not shown above the title of its table", Blocks: []Block{{Table: table}}},
		{Title: "Section", Blocks: []Block{{Note: "note", Facts: [][2]string{{"term", "value"}}, List: []string{"one\n  line"}, Code: "a <b> | c"}}},
	}}
	same(t, written(t, d, (*Document).Markdown), `
## Title

Subtitle

### The table

| name | full \| sync |
| --- | --- |
| **part** |  |
| a\|b | 1 s (first, second) |
| c | two \| seconds |

Its note.

### Section

note

- term: value
- one line

`+"```\na <b> | c\n```\n")
}

// TestMarkdownWide: a table of many columns becomes several. Each begins with the columns that name the row.
func TestMarkdownWide(t *testing.T) {
	table := &Table{Note: "Its note.", Columns: []Column{{Name: "Name"}, {Name: "Size", Row: true}}}
	cells := []Cell{Text("a"), Int(7)}
	for i := range 9 {
		table.Columns = append(table.Columns, Column{Name: fmt.Sprint("f", i)})
		cells = append(cells, Int(i))
	}
	table.Heading("part")
	table.Add(cells...)
	same(t, markdown(t, Block{Table: table}), `
## 

| name | size | f0 | f1 | f2 | f3 | f4 |
| --- | --- | --- | --- | --- | --- | --- |
| **part** |  |  |  |  |  |  |
| a | 7 | 0 | 1 | 2 | 3 | 4 |

| name | size | f5 | f6 | f7 | f8 |
| --- | --- | --- | --- | --- | --- |
| **part** |  |  |  |  |  |
| a | 7 | 5 | 6 | 7 | 8 |

Its note.
`)
}

// TestMarkdownFolded: the heading stays. It is within HTML, so it is escaped.
func TestMarkdownFolded(t *testing.T) {
	same(t, markdown(t, Block{Folded: true, Heading: "a <b>", List: []string{"one"}}, Block{Note: "after"}), `
## 

<details><summary>a &lt;b&gt;</summary>

- one

</details>

after
`)
}

// TestMarkdownSpread: ± is explained below each table that has it.
func TestMarkdownSpread(t *testing.T) {
	with := &Table{Intervals: true, Note: "Medians.", Columns: []Column{{Name: "n"}}, Rows: [][]Cell{{Text("1 s ± 2 %")}}}
	without := &Table{Note: "Medians.", Columns: []Column{{Name: "n"}}, Rows: [][]Cell{{Text("1 s ±2%")}}} // another meaning
	contains(t, markdown(t, Block{Table: with}), "\nMedians. "+spreadLegend+".\n")
	lacks(t, markdown(t, Block{Table: without}), spreadLegend)
}
