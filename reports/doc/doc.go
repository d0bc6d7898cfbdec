// Package doc has the content of reports as data, and writes it: sections with tables, notes, lists and plots become a
// page (HTML), a terminal's text or Markdown.
//
// A section does not know where it will be shown. What only one output can show, such as a table with a column for each
// of many subjects, is marked with On. Each output is one file: page.go, terminal.go, markdown.go. All outputs drop the
// columns without values.
//
// format.go writes values with units, and words.go the small words of sentences.
package doc

// Media are outputs. The zero value means every output.
type Media uint8

// The outputs.
const (
	Page Media = 1 << iota
	Terminal
	Markdown
)

// has reports whether m includes one output.
func (m Media) has(one Media) bool { return m == 0 || m&one != 0 }

// Document is a report: the sections in the order in which every output shows them.
type Document struct {
	Kind     string // above the title on the page: "synclab report"
	Title    string
	Subtitle string
	Sections []Section
	Footer   string // of the page; may contain links in HTML, written by this program
	// Live is the path of the page's server-sent events, each with PageSections as a JSON string; empty: the page stays as
	// it is. A browser without scripts loads a live page again every five seconds.
	Live string
}

// Section is a part of a report. ID is its anchor on the page. A section without blocks for an output does not appear
// there.
type Section struct {
	ID    string
	Title string
	Short string // in the page's navigation; empty: Title
	// Dense makes type and columns narrow, for tables with a column for each subject. NewSheet starts a new sheet in
	// print. Filter adds a field above the tables that hides rows.
	Dense, NewSheet, Filter bool
	Blocks                  []Block
}

// Add appends blocks.
func (s *Section) Add(blocks ...Block) { s.Blocks = append(s.Blocks, blocks...) }

// Block is a piece of a section. Its fields are shown in the order in which they stand here, the empty ones not.
type Block struct {
	On Media
	// Folded hides all but the heading, or the table's title, on the page until the reader opens it. Warn frames it, and
	// puts "warning: " before each of the list's lines on a terminal.
	Folded, Warn bool
	Heading      string
	Verdict      []Line // of a run
	Note         string
	Soft         bool   // the note is of second importance: small on the page
	HTML         string // for the page only, written by this program
	Tiles        []Tile // for the page only
	Plots        []Plot // for the page only
	Table        *Table
	Facts        [][2]string // terms and their values
	List         []string
	Code         string // a command or an output, as it is
	Inert        bool   // the code is another user's text: the page has no button that copies it
}

// shown reports whether the block has content for an output.
func (b Block) shown(m Media) bool {
	if !b.On.has(m) {
		return false
	}
	return b.Heading != "" || len(b.Verdict) > 0 || b.Note != "" || (m == Page && (len(b.Plots) > 0 || len(b.Tiles) > 0 || b.HTML != "")) || len(b.Facts) > 0 || len(b.List) > 0 || b.Code != "" ||
		(b.Table != nil && !b.Table.on(m).empty())
}

// title is what an output shows above the block: its heading, or the title of a table with values.
func (b Block) title(m Media) string {
	if b.Heading == "" && b.Table != nil && !b.Table.on(m).empty() {
		return b.Table.Title
	}
	return b.Heading
}

// blocks returns the blocks for an output.
func (s Section) blocks(m Media) []Block {
	var out []Block
	for _, b := range s.Blocks {
		if b.shown(m) {
			out = append(out, b)
		}
	}
	return out
}

// Plot is a drawn plot: its files, and the SVG for the page.
type Plot struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Caption string `json:"caption"`
	// Badges are caveats about the plot, as in Cell.
	Badges []string `json:"badges,omitempty"`
	SVG    string   `json:"svg"`           // file name
	PNG    string   `json:"png,omitempty"` // file name
	Markup []byte   `json:"-"`
	Places string   `json:"-"` // markup of the places with values, and of the legend, for the page's script
}
