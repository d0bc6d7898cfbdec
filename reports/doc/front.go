package doc

import (
	"slices"
	"strings"
)

// Level says how to take a line or a value. The page has a colour and a mark for each, so that no meaning is in colours
// only.
type Level string

// The levels.
const (
	Bad  Level = "bad"
	Care Level = "care"
	Good Level = "good"
	Info Level = "info"
)

// Mark is the level's sign.
func (l Level) Mark() string {
	return map[Level]string{Bad: "✗", Care: "!", Good: "✓"}[l]
}

// Word is the level for readers who see neither colour nor sign.
func (l Level) Word() string {
	return map[Level]string{Bad: "bad: ", Care: "caution: ", Good: "good: "}[l]
}

// Line is one line of a verdict.
type Line struct {
	Level Level  `json:"level"`
	Text  string `json:"text"`
}

// text is the line on a terminal and in Markdown.
func (l Line) text() string { return strings.TrimSpace(l.Level.Mark() + " " + l.Text) }

// Tile is one figure of all subjects, for the first screen of a page.
type Tile struct {
	Title  string
	Note   string   // small, below the title: what the figure is, and its SLO
	Badges []string // caveats about all rows, as in Cell
	Rows   []TileRow
	More   int // rows that are not shown
}

// TileRow is the figure of one subject.
type TileRow struct {
	Name  Cell
	Value Cell
	Ratio string  // to the baseline: "18× faster"
	Share float64 // length of the bar, 0 to 1
	Level Level   // Bad: it violates the tile's SLO
}

// Single reports whether the tile has one value only, which is then large.
func (t Tile) Single() bool { return len(t.Rows) == 1 && t.More == 0 }

// More is the small text below the value.
func (r TileRow) More() string {
	parts := []string{strings.ReplaceAll(r.Value.Sub, "\n", ", "), r.Ratio}
	if r.Level == Bad {
		parts = append(parts, "violates the SLO")
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

// Width is the length of the bar in percent; 0 without a share.
func (r TileRow) Width() int {
	if r.Share <= 0 {
		return 0
	}
	return int(100*min(max(r.Share, 0.01), 1) + 0.5)
}
