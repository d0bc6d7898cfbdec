package front

import (
	"slices"
	"strings"

	"synclab/reports/comparison"
	"synclab/reports/doc"
	"synclab/reports/records"
	"synclab/reports/sections"
)

// mostRows bounds the subjects of a tile.
const mostRows = 8

// tiles are the figures of the first screen. The second name is taken where the first was not measured.
var tiles = []struct {
	names []string
	note  string
}{
	{names: []string{comparison.FigureCold}, note: "start of the process → every Service visible"},
	{names: []string{comparison.FigureNPL99, comparison.FigureReaction}, note: "change due → visible in the kernel"},
	{names: []string{comparison.FigureFirstPacket, comparison.FigureFirstSYN}, note: "of a connection, to the last Service; median"},
	{names: []string{comparison.FigureConnCPU}, note: "both ends and the node; connections through Services"},
	{names: []string{comparison.FigureTotalRSS}, note: "of the proxier and its tools, resident"},
}

// tileSection has the main figures of the largest cell.
func tileSection(s *sections.Summary) doc.Section {
	out := doc.Section{ID: "figures", Title: "Main figures", Short: "Figures"}
	if all := s.MoveTiles(); len(all) > 0 { // a run for moves is no comparison: each subject runs for a part of it
		out.Add(doc.Block{On: doc.Page, Soft: true, Note: s.MediansText()}, doc.Block{On: doc.Page, Tiles: all})
		return out
	}
	cell, c := mainCell(s)
	if c == nil {
		return out
	}
	var all []doc.Tile
	for _, one := range tiles {
		for _, name := range one.names {
			if comparison.FigureOf(name).Packet && cell.InGuest() {
				continue // a guest's clock is too coarse
			}
			if name == comparison.FigureTotalRSS && !s.OfOwnProcess() {
				continue // it is that of the lab, with the simulated cluster
			}
			limit := 0.0
			if name == comparison.FigureNPL99 {
				limit = s.SLOs.Latency
			}
			if tile := tileOf(s, c, name, one.note, limit); len(tile.Rows) > 0 {
				all = append(all, tile)
				break
			}
		}
	}
	if len(all) == 0 {
		return out
	}
	against := ""
	if len(c.Ratios) > 0 {
		against = " Ratios compare with " + c.Baseline + "."
	}
	out.Add(doc.Block{On: doc.Page, Soft: true, Note: "At " + records.SizesText([]records.Cell{cell}) + records.SettingsTail(records.ShortSettings(cell.Settings())) + ". " + s.MediansText() + against},
		doc.Block{On: doc.Page, Tiles: all})
	return out
}

// mainCell is the largest compared cell, else the largest cell of all.
func mainCell(s *sections.Summary) (records.Cell, *comparison.CellComparison) {
	if c := s.LargestComparison(); c != nil {
		return c.Cell, c
	}
	if len(s.Collected.Cells) == 0 {
		return records.Cell{}, nil
	}
	cell := s.Collected.Cells[0]
	for _, other := range s.Collected.Cells {
		if other.Services > cell.Services {
			cell = other
		}
	}
	return cell, &comparison.CellComparison{Cell: cell, Sides: comparison.SidesOf(s.Collected, cell)}
}

// tileOf has a figure of all subjects, the best first.
func tileOf(s *sections.Summary, c *comparison.CellComparison, name, note string, limit float64) doc.Tile {
	text := comparison.FigureOf(name)
	t := doc.Tile{Title: text.Text, Note: note}
	if limit > 0 {
		t.Note += "; SLO ≤ " + doc.TrimTick(doc.Format(limit, text.Unit))
	}
	most := 0.0
	sides := slices.DeleteFunc(slices.Clone(c.Sides), func(side comparison.Side) bool { return side.Figure(name) == nil })
	slices.SortStableFunc(sides, bestFirst(name))
	for _, side := range sides {
		most = max(most, side.Figure(name).Value)
	}
	for i, side := range sides {
		if i == mostRows {
			t.More = len(sides) - i
			break
		}
		f := side.Figure(name)
		row := doc.TileRow{Name: s.MarkedCell(side.Series), Value: sections.FigureCell(side, text), Share: f.Value / most}
		if r := c.Ratio(side.Series, c.Baseline, name); r != nil && r.Words != "unknown" {
			row.Ratio = strings.TrimSuffix(r.Short(), "?") // the note above says whether there are intervals
			if row.Ratio == "~" {
				row.Ratio = "no difference shown"
			}
		}
		if limit > 0 && (f.Low != nil && *f.Low > limit || f.Low == nil && f.Value > limit) {
			row.Level = doc.Bad
		}
		t.Rows = append(t.Rows, row)
	}
	shareBadges(&t)
	return t
}

// shareBadges moves the badges that all rows have to the tile: they stand there once.
func shareBadges(t *doc.Tile) {
	for i, row := range t.Rows {
		if i == 0 {
			t.Badges = slices.Clone(row.Name.Badges)
		}
		t.Badges = slices.DeleteFunc(t.Badges, func(badge string) bool { return !slices.Contains(row.Name.Badges, badge) })
	}
	for i := range t.Rows {
		badges := &t.Rows[i].Name.Badges
		*badges = slices.DeleteFunc(*badges, func(badge string) bool { return slices.Contains(t.Badges, badge) })
	}
}
