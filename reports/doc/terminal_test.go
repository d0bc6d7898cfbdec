package doc

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func terminal(t *testing.T, blocks ...Block) string {
	t.Helper()
	return written(t, document(blocks...), (*Document).Text)
}

func TestTerminal(t *testing.T) {
	table := &Table{Title: "The table", Note: "Its note.", Columns: []Column{{Name: "Subject"}, {Name: "Full sync", Short: "full", Legend: "full: a full sync"},
		{Name: "CPU", Legend: "full: a full sync"}, {Name: "Long-lived", Legend: "long-lived: flows"}}}
	table.Heading("part")
	table.Add(Text("a\n\n✓ forged\r\n"), Cell{Text: "12 µs", Sub: "not shown", Narrow: "not shown"}, Text("1"), Cell{Text: "not shown", Terminal: "3"})
	table.Add(Text("a | b"), None(), Text("200"), Cell{})
	d := &Document{Kind: "kind", Title: "Title", Subtitle: "not shown", Footer: "footer", Sections: []Section{
		{Title: "Not shown above the title of its table", Blocks: []Block{{Table: table}}},
		{Title: "Section", Blocks: []Block{{Note: "note"}, {Heading: "Heading", Facts: [][2]string{{"term", "value"}}, List: []string{"one"}, Code: "a <b>\nc"}}},
	}}
	same(t, written(t, d, (*Document).Text), `
Title

The table

subject       full  CPU  long-lived
part
a  ✓ forged  12 µs    1           3
a | b            –  200

full: a full sync; long-lived: flows
Its note.

Section

note

Heading

term: value
- one

  a <b>
  c
`)
}

// TestWarnings: each line says that it is a warning, so a list of them needs no section title.
func TestWarnings(t *testing.T) {
	d := &Document{Sections: []Section{{Title: "Caveats", Blocks: []Block{{Warn: true, List: []string{"one", "two"}}}}}}
	same(t, written(t, d, (*Document).Text), "\n\nwarning: one\nwarning: two\n")
}

// TestAbove: the values of such columns stand above the rows where they change, and after the table's own headings.
func TestAbove(t *testing.T) {
	table := &Table{Columns: []Column{{Name: "name"}, {Name: "settings", Above: true}, {Name: "mode", Above: true}, {Name: "n"}}}
	table.Add(Text("a"), Text("x=1"), Text("y"), Int(1))
	table.Add(Text("b"), Text("x=1"), Text("y"), Int(2))
	table.Heading("part")
	table.Add(Text("c"), Text("x=1"), Text("z"), Int(3))
	same(t, terminal(t, Block{Table: table}), `

name  n
x=1 y
a     1
b     2
part
x=1 z
c     3
`)
}

// wide is a text of n letters.
func wide(letter string, n int) string { return strings.Repeat(letter, n) }

// TestNarrow: a table uses its narrow texts if it is wider than Width.
func TestNarrow(t *testing.T) {
	for name, narrow := range map[int]bool{Width - 30 - 2: false, Width - 30 - 1: true} {
		table := &Table{Columns: []Column{{Name: "name"}, {Name: "n", Spare: 1}}}
		table.Add(Text(wide("n", name)), Cell{Text: wide("µ", 30), Narrow: "narrow"})
		out := terminal(t, Block{Table: table})
		if got := strings.Contains(out, "narrow"); got != narrow {
			t.Errorf("a name of %d: narrow texts: %v\n%s", name, got, out)
		}
	}
}

// screen is a terminal of some columns.
type screen struct {
	bytes.Buffer
	columns int
}

func (s *screen) Columns() int { return s.columns }

// TestScreen: text fits a terminal's columns. A table that is too wide without spare columns becomes several, each with
// the columns that name rows. Elsewhere it stays whole.
func TestScreen(t *testing.T) {
	table := &Table{Note: wide("word ", 60), Columns: []Column{{Name: "subject"}, {Name: "services", Row: true}}}
	cells := []Cell{Text("one"), Int(100)}
	for i := range 12 {
		table.Columns = append(table.Columns, Column{Name: fmt.Sprintf("figure%d", i)})
		cells = append(cells, Text(wide("v", 8)))
	}
	table.Add(cells...)
	for columns, parts := range map[int]int{0: 1, 80: 2, 60: 3, 200: 1} {
		s := &screen{columns: columns}
		if err := document(Block{Table: table}).Text(s); err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(s.String(), "\n") {
			if n := utf8.RuneCountInString(line); columns > 0 && n > columns {
				t.Errorf("%d columns: a line of %d: %q", columns, n, line)
			}
		}
		if got := strings.Count(s.String(), "subject  services"); got != parts {
			t.Errorf("%d columns: %d tables, want %d\n%s", columns, got, parts, s)
		}
		for i := range 12 {
			if !strings.Contains(s.String(), fmt.Sprintf("figure%d", i)) {
				t.Errorf("%d columns: figure%d is missing", columns, i)
			}
		}
	}
}

// TestSpare: if narrow texts are not enough, columns are left out, the largest numbers first. Legends go with them.
func TestSpare(t *testing.T) {
	for name, want := range map[int][]string{
		Width - 4*12:     {"name", "a", "b", "c", "d"},
		Width - 4*12 + 1: {"name", "a", "d"},
		Width - 2*12:     {"name", "a", "d"},
		Width - 2*12 + 1: {"name", "a"},
		Width + 1:        {"name", "a"}, // 0 is never left out
	} {
		table := &Table{Columns: []Column{{Name: "name"}, {Name: "a"}, {Name: "b", Spare: 2, Legend: "b: left out first"}, {Name: "c", Spare: 2}, {Name: "d", Spare: 1, Legend: "d: left out last"}}}
		value := Cell{Text: wide("v", 12), Narrow: wide("v", 10)}
		table.Add(Text(wide("n", name)), value, value, value, value)
		out := terminal(t, Block{Table: table})
		if got := terminalColumns(out); !slices.Equal(got, want) {
			t.Errorf("a name of %d: columns %q, want %q", name, got, want)
		}
		for column, legend := range map[string]string{"b": "b: left out first", "d": "d: left out last"} {
			if got := strings.Contains(out, legend); got != slices.Contains(want, column) {
				t.Errorf("a name of %d: the legend of %s is shown: %v", name, column, got)
			}
		}
	}
}

// grouped has a column for each subject. Short names are unique only within their group.
func grouped(first string, subjects ...string) *Table {
	table := &Table{Note: "Note.", Columns: []Column{{Name: "fault", Legend: "fault: what fails"}}}
	cells := []Cell{Text(first)}
	for i, subject := range subjects {
		group, short, _ := strings.Cut(subject, "/")
		table.Columns = append(table.Columns, Column{Name: subject, Short: short, Group: group})
		cells = append(cells, Int(i+1))
	}
	table.Heading("part")
	table.Add(cells...)
	return table
}

// TestGroups: a table that is too wide becomes one for each group, with short names. The explanation stands once.
func TestGroups(t *testing.T) {
	four := []string{"kube-proxy/iptables", "kube-proxy/nftables", "synclab/iptables", "synclab/nftables"}
	same(t, terminal(t, Block{Table: grouped("flush", four...)}), `

fault  kube-proxy/iptables  kube-proxy/nftables  synclab/iptables  synclab/nftables
part
flush                    1                    2                 3                 4

fault: what fails
Note.
`)
	// Even if short names make it narrow enough for one table.
	const long = "flush every table, which takes a while"
	same(t, terminal(t, Block{Table: grouped(long, four...)}), `

kube-proxy
fault                                   iptables  nftables
part
flush every table, which takes a while         1         2

synclab
fault                                   iptables  nftables
part
flush every table, which takes a while         3         4

fault: what fails
Note.
`)
}

// TestOneGroup: short names need the name of their group, also if it is the only one.
func TestOneGroup(t *testing.T) {
	out := terminal(t, Block{Table: grouped(wide("f", 80), "kube-proxy/iptables", "kube-proxy/nftables")})
	contains(t, out, "\nkube-proxy\nfault ", "  iptables  nftables\n")
}

// TestWideGroup: a group that is too wide becomes several tables.
func TestWideGroup(t *testing.T) {
	out := terminal(t, Block{Table: grouped(wide("f", 80), "g/"+wide("a", 12), "g/"+wide("b", 12), "g/"+wide("c", 12))})
	if got := strings.Count(out, "\ng\nfault "); got != 2 {
		t.Errorf("%d tables, want 2:\n%s", got, out)
	}
	for _, name := range []string{"a", "b", "c"} {
		contains(t, out, "  "+wide(name, 12))
	}
	lacks(t, out, "g/")
}

// TestWidth: no line is wider than Width.
func TestWidth(t *testing.T) {
	words := strings.TrimSpace(strings.Repeat("words ", 60))
	spare := &Table{Title: "table " + words, Note: words, Columns: []Column{{Name: "name"}}}
	row := []Cell{Text("a")}
	var subjects []string
	for i := range 20 {
		spare.Columns = append(spare.Columns, Column{Name: "column " + strconv.Itoa(i), Spare: i, Legend: "legend " + words})
		row = append(row, Text(wide("v", 15)))
		subjects = append(subjects, "group"+strconv.Itoa(i/10)+"/subject-"+strconv.Itoa(i))
	}
	spare.Heading("part " + words)
	spare.Add(row...)
	out := written(t, &Document{Title: "title " + words, Sections: []Section{{Title: "section " + words, Blocks: []Block{
		{Note: words},
		{Heading: "heading " + words, Warn: true, List: []string{words}},
		{Facts: [][2]string{{"term", words}}, List: []string{words}},
		{Table: spare}, {Table: grouped("flush", subjects...)},
	}}}}, (*Document).Text)
	for line := range strings.Lines(out) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > Width {
			t.Errorf("a line of %d: %s", n, line)
		}
	}
	contains(t, out, "title words", "section words", "heading words", "table words", "legend words", "part words", "warning: words", "term: words", "- words", "subject-0", "subject-19")
}

// TestLongName: a name is never cut, and each column beside it has its own table.
func TestLongName(t *testing.T) {
	name := wide("n", Width+1)
	out := terminal(t, Block{Table: grouped(name, "g/a", "g/b", "h/c"), List: []string{name}})
	if got := strings.Count(out, name); got != 3+1 {
		t.Errorf("the name is on %d lines, want 4:\n%s", got, out)
	}
	contains(t, out, name+"  1\n", name+"  2\n", name+"  3\n")
}

// TestExplanationsOnce: of several tables in a section with the same legends and note, the last one has them.
func TestExplanationsOnce(t *testing.T) {
	table := func(note string) *Table {
		return &Table{Note: note, Columns: []Column{{Name: "name"}, {Name: "n", Legend: "n: number"}}, Rows: [][]Cell{{Text("a"), Int(1)}}}
	}
	empty := table("Same.")
	empty.Rows = nil
	same(t, terminal(t, Block{Table: table("Same.")}, Block{Table: table("Other.")}, Block{Table: table("Same.")}, Block{Table: empty}), `

name  n
a     1

name  n
a     1

n: number
Other.

name  n
a     1

n: number
Same.
`)
}

// TestSpread: ± is short on a terminal, and explained if it is there.
func TestSpread(t *testing.T) {
	table := func(name string) *Table {
		return &Table{Intervals: true, Columns: []Column{{Name: "name"}, {Name: "sync", Legend: "sync: a full one"}}, Rows: [][]Cell{{Text(name), {Text: "1.50 s ±\u00a04\u00a0%", Narrow: "1.50 s"}}}}
	}
	same(t, terminal(t, Block{Table: table("a")}), `

name        sync
a     1.50 s ±4%

sync: a full one; `+spreadLegend+"\n")
	narrow := terminal(t, Block{Table: table(wide("n", 105))})
	contains(t, narrow, "1.50 s\n", "sync: a full one\n")
	lacks(t, narrow, "±")
}
