package plots

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"synclab/bench/outfile"
	"synclab/reports/doc"
	"synclab/reports/figure"
	"synclab/reports/records"
	"synclab/reports/sections"
)

// figures returns the plots that have points, in the order of the page.
func figures(s *sections.Summary) []*figure.Figure {
	lines := s.Collected.SweepLines()
	var out []*figure.Figure
	perLine := func(draw func(*sections.Summary, records.SweepLine) *figure.Figure) {
		for i, line := range lines[:min(len(lines), 3)] {
			if f := draw(s, line); f != nil {
				if i > 0 {
					f.Name += fmt.Sprintf("-%d", i+1)
				}
				out = append(out, f)
			}
		}
	}
	single := func(f *figure.Figure) {
		if f != nil {
			out = append(out, f)
		}
	}
	out = append(out, disruptionFigures(s)...)
	single(ratiosFigure(s))
	single(comparedDurations(s))
	single(comparedCost(s))
	if len(s.Comparisons) > 0 {
		single(programmingFigure(s)) // all subjects in one plot: part of the comparison
	}
	single(periodFigure(s))
	perLine(syncGrowthFigure)
	perLine(restoreGrowthFigure)
	single(phasesFigure(s))
	if len(s.Comparisons) == 0 {
		single(programmingFigure(s))
	}
	out = append(out, timelineFigures(s)...)
	single(packetsByPosition(s))
	perLine(packetsBySize)
	perLine(flowsBySize)
	perLine(connectionsBySize)
	perLine(comparedCounts)
	return out
}

// Draw writes every plot, and removes the plots of an earlier build first.
func Draw(s *sections.Summary, out *outfile.Folder, png bool) error {
	if err := RemoveEarlier(out); err != nil {
		return err
	}
	s.Plots = nil
	for _, f := range figures(s) {
		one, err := f.Save(out, png)
		if err != nil {
			return err
		}
		s.Plots = append(s.Plots, one)
	}
	return nil
}

// RemoveEarlier removes the plots that the folder's summary.json names. Without that file, it removes nothing.
func RemoveEarlier(out *outfile.Folder) error {
	text, err := out.Read("summary.json")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var earlier struct {
		Plots []doc.Plot `json:"plots"`
	}
	if json.Unmarshal(text, &earlier) != nil {
		return nil // another program's file, or incomplete: no names
	}
	for _, p := range earlier.Plots {
		for _, name := range []string{p.SVG, p.PNG} {
			if ext := filepath.Ext(name); name != filepath.Base(name) || ext != ".svg" && ext != ".png" {
				continue // not a plot: summary.json is untrusted
			}
			if err := out.Remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}
