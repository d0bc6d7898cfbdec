package plots

import (
	"fmt"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/figure"
	"synclab/reports/profiles"
	"synclab/reports/sections"
)

// mostFunctions is the number of functions in a plot.
const mostFunctions = 6

// functionFigures draw, for each kind of sync of each subject, the functions with most time versus Services.
func functionFigures(s *sections.Summary) []*figure.Figure {
	var out []*figure.Figure
	if s.Profiles == nil {
		return nil
	}
	for _, g := range s.Profiles.Growth {
		if f := functionFigure(g); f != nil {
			out = append(out, f)
		}
	}
	return out
}

func functionFigure(g profiles.Growth) *figure.Figure {
	functions := g.Functions[:min(len(g.Functions), mostFunctions)]
	names := make([]string, len(functions))
	for i, one := range functions {
		names[i] = one.Name
	}
	f := &figure.Figure{
		Name:    fileName(fmt.Sprintf("functions %s %s", g.Subject, g.Kind)),
		Title:   fmt.Sprintf("Functions of %s, %s, versus Services", g.Subject, g.Kind) + settingsTail(g.Settings),
		Caption: "CPU time of each function per sync, without the functions that it calls; the slope of a line is the exponent.",
	}
	p := figure.NewPlot("Services (log scale)", "CPU time per sync (log scale)")
	drawn := 0
	for i, look := range figure.GiveLooks(names) {
		one := functions[i]
		if one.Law == nil {
			continue
		}
		var points figure.Intervals
		for k, seconds := range one.Times {
			if seconds > 0 {
				points = append(points, figure.SizePoint{X: float64(g.Sizes[k]), Distribution: estimate.Describe(estimate.Single(seconds))})
			}
		}
		first, last := points[0].X, points[len(points)-1].X
		ends := plotter.XYs{{X: first, Y: one.Law.At(first)}, {X: last, Y: one.Law.At(last)}}
		thumbs := []plot.Thumbnailer{figure.AddMedians(p, points, look.Color, look.Shape), figure.AddLine(p, ends, look.Color, look.Dashes...)}
		for _, point := range points {
			f.Place(p, point.X, point.Median, fmt.Sprintf("%s, %s Services: %s", one.Name, doc.Format(point.X, "count"), doc.Format(point.Median, "s")), look.Color)
		}
		f.Explain(fmt.Sprintf("%s (%s): exponent %.2f", one.Name, one.Origin, one.Law.Slope), thumbs...)
		drawn++
	}
	if drawn == 0 {
		return nil
	}
	figure.LogAxis(&p.X, figure.TickCount)
	figure.LogAxis(&p.Y, figure.TickSeconds)
	f.Add(p, figure.PanelHeight)
	return f
}

// settingsTail are the settings of a title, without the one that every profile has.
func settingsTail(settings string) string {
	settings = strings.TrimSpace(strings.ReplaceAll(settings, "profile=on", ""))
	if settings == "" {
		return ""
	}
	return ", " + settings
}
