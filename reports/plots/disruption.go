package plots

import (
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"synclab/bench/raw"
	"synclab/reports/doc"
	"synclab/reports/figure"
	"synclab/reports/records"
	"synclab/reports/sections"
	"synclab/scenarios"
)

// outcomeLook is how the dots of an outcome are drawn: answered flows faint and small, the others bright and large.
type outcomeLook struct {
	outcome, text string
	color         color.NRGBA
	size          vg.Length
	cross         bool
}

var OutcomeLooks = []outcomeLook{
	{"", "answered", color.NRGBA{0x22, 0x26, 0x2b, 0x80}, 1.3, false},
	{"refused", "refused", color.NRGBA{0xe6, 0x7e, 0x00, 0xff}, 2.6, false},
	{"reset", "reset", color.NRGBA{0xb0, 0x2a, 0x8f, 0xff}, 2.6, false},
	{"timeout", "timed out", color.NRGBA{0xd0, 0x1c, 0x1c, 0xff}, 2.6, false},
	{records.Misrouted, "misrouted", color.NRGBA{0xd0, 0x00, 0x00, 0xff}, 6, true},
}

// otherOutcome is for an unknown outcome.
var otherOutcome = outcomeLook{"", "other", color.NRGBA{0x80, 0x00, 0x80, 0xff}, 2.6, false}

// maxAnswered bounds the dots of answered flows in one plot. All other flows are drawn.
const maxAnswered = 2500

// disruptionFigures draws, for each series, the first repetition of its largest cell with a stream.
func disruptionFigures(s *sections.Summary) []*figure.Figure {
	cells := s.DisruptedCells()
	if len(cells) == 0 {
		return nil
	}
	var figures []*figure.Figure
	for _, d := range s.DisruptionsOf(cells[0]) {
		i, one := s.SeriesNamed(d.Series)
		if f := disruptionFigure(s, i, one.Cells[cells[0].ID()]); f != nil {
			figures = append(figures, f)
		}
	}
	return figures
}

func disruptionFigure(s *sections.Summary, index int, samples *records.Samples) *figure.Figure {
	one := s.Collected.Series[index]
	flows, syncs, marks := FirstStream(samples)
	if len(flows) == 0 {
		return nil
	}
	f := &figure.Figure{Name: "flows-" + fileName(one.Name), Title: fmt.Sprintf("Flows while the cluster changes: %s, %s", one.Name, doc.Plural(samples.Cell.Services, "Service")),
		Caption: "First repetition" + records.SettingsTail(records.ShortSettings(samples.Cell.Settings())) + ". Each dot is a new flow at its due time, at the height of its latency or of its time until failure. Bands are syncs (dark: full, pale: partial)."}
	p := figure.NewPlot("time since the repetition began", "flow latency (log scale)")
	from, to, low, high := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, r := range flows {
		from, to, low, high = min(from, r.At), max(to, r.At), min(low, max(r.Value, 1e-6)), max(high, r.Value)
	}
	p.Add(bands{syncs, s.Color(index)}, stepMarks{marks})
	for _, look := range append(slices.Clone(OutcomeLooks), otherOutcome) {
		dots := DotsOf(flows, look)
		if len(dots) == 0 {
			continue
		}
		n := len(dots)
		if look == OutcomeLooks[0] {
			dots = thinDots(dots, maxAnswered)
			if len(dots) < n {
				f.Caption += fmt.Sprintf(" Of %s answered flows, %s are drawn, including the slowest; all flows with other outcomes are drawn.", doc.Grouped(int64(n)), doc.Grouped(int64(len(dots))))
			}
		}
		p.Add(specks{dots, look})
		f.Explain(look.text+": "+doc.Grouped(int64(n)), specks{look: look})
	}
	f.Explain("full sync", rectangle{color: figure.WithAlpha(s.Color(index), bandFull)})
	f.Explain("partial sync", rectangle{color: figure.WithAlpha(s.Color(index), bandPartial)})
	pad := (to - from) * 0.01
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = from-pad, to+pad, low, high
	figure.LinearAxis(&p.X, false, figure.TickSeconds)
	figure.LogAxis(&p.Y, figure.TickSeconds)
	p.Y.Max = p.Y.Min * math.Pow(p.Y.Max/p.Y.Min, 1/(1-headroom)) // room for the names of the steps
	f.Add(p, figure.PanelHeight-20)
	return f
}

// headroom is the part of the plot's height for the names of the steps.
const headroom = 0.16

// FirstStream returns the flows, the syncs and the starts of steps of the first repetition with a stream.
func FirstStream(samples *records.Samples) (flows, syncs []records.Record, marks []stepMark) {
	var of *records.Repetition
	for _, r := range samples.Records {
		if r.Metric == raw.Flow && (of == nil || r.Run < of.Run || r.Run == of.Run && r.Rep < of.Rep) {
			of = &records.Repetition{Run: r.Run, Rep: r.Rep}
		}
	}
	if of == nil {
		return nil, nil, nil
	}
	owners, begins, names := sections.StepOwners(samples), map[string]float64{}, map[string]string{}
	for _, r := range samples.Records {
		if (records.Repetition{Run: r.Run, Rep: r.Rep}) != *of {
			continue
		}
		switch r.Metric {
		case raw.Flow:
			flows = append(flows, r)
			owner := owners[r.Step]
			if due, ok := begins[owner]; !ok || r.At < due {
				begins[owner] = r.At
			}
		case raw.FullSync, raw.PartialSync:
			syncs = append(syncs, r)
		case raw.FaultDuration:
			names[owners[r.Step]] = sections.NumberedFault(r.Fault)
		}
	}
	for _, step := range scenarios.SortedSteps(begins) {
		name := names[step]
		if name == "" {
			name = sections.StepText(step)
		}
		marks = append(marks, stepMark{begins[step], name})
	}
	return flows, syncs, marks
}

// DotsOf returns the flows of an outcome. Flows with an unknown outcome belong to otherOutcome.
func DotsOf(flows []records.Record, look outcomeLook) plotter.XYs {
	var dots plotter.XYs
	for _, r := range flows {
		known := slices.ContainsFunc(OutcomeLooks, func(l outcomeLook) bool { return l.outcome == r.Outcome })
		if known && look != otherOutcome && r.Outcome == look.outcome || !known && look == otherOutcome {
			dots = append(dots, plotter.XY{X: r.At, Y: max(r.Value, 1e-6)})
		}
	}
	return dots
}

// specks are dots in one path, so that the file stays small with thousands. Of overlapping dots, one is drawn.
type specks struct {
	dots plotter.XYs
	look outcomeLook
}

// Plot implements plot.Plotter.
func (s specks) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	type spot struct{ x, y int }
	seen := map[spot]bool{}
	grid := s.look.size / 2
	var path vg.Path
	for _, dot := range s.dots {
		at := vg.Point{X: x(dot.X), Y: y(dot.Y)}
		on := spot{int(at.X / grid), int(at.Y / grid)}
		if seen[on] {
			continue
		}
		seen[on] = true
		s.add(&path, at)
	}
	s.draw(&c, path)
}

func (s specks) add(path *vg.Path, at vg.Point) {
	r := s.look.size / 2
	if s.look.cross {
		path.Move(vg.Point{X: at.X - r, Y: at.Y - r})
		path.Line(vg.Point{X: at.X + r, Y: at.Y + r})
		path.Move(vg.Point{X: at.X - r, Y: at.Y + r})
		path.Line(vg.Point{X: at.X + r, Y: at.Y - r})
		return
	}
	path.Move(vg.Point{X: at.X - r, Y: at.Y - r})
	path.Line(vg.Point{X: at.X + r, Y: at.Y - r})
	path.Line(vg.Point{X: at.X + r, Y: at.Y + r})
	path.Line(vg.Point{X: at.X - r, Y: at.Y + r})
	path.Close()
}

func (s specks) draw(c *draw.Canvas, path vg.Path) {
	if s.look.cross {
		c.SetLineStyle(draw.LineStyle{Color: s.look.color, Width: 1.5})
		c.Stroke(path)
		return
	}
	c.SetColor(s.look.color)
	c.Fill(path)
}

// Thumbnail implements plot.Thumbnailer.
func (s specks) Thumbnail(c *draw.Canvas) {
	s.look.size = max(s.look.size, 3)
	var path vg.Path
	s.add(&path, c.Center())
	s.draw(c, path)
}

// stepMark is where a step starts.
type stepMark struct {
	at   float64
	name string
}

// stepMarks are lines through the plot with the names of the steps at the top, in two rows. Names without room are
// omitted.
type stepMarks struct{ marks []stepMark }

// Plot implements plot.Plotter.
func (s stepMarks) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	style := figure.Sans(figure.SmallSize-1, false)
	style.Color, style.XAlign, style.YAlign = figure.Grey, draw.XLeft, draw.YTop
	var ends [2]vg.Length
	for _, mark := range s.marks {
		at := x(mark.at)
		c.StrokeLine2(draw.LineStyle{Color: figure.WithAlpha(figure.Grey, 0xa0), Width: 0.6, Dashes: []vg.Length{2, 2}}, at, c.Min.Y, at, c.Max.Y)
		width := style.Width(mark.name)
		if at+width > c.Max.X+figure.Margin {
			at = c.Max.X + figure.Margin - width
		}
		for row := range ends {
			if at < ends[row] {
				continue
			}
			c.FillText(style, vg.Point{X: at + 2, Y: c.Max.Y - vg.Length(row)*(figure.SmallSize+2)}, mark.name)
			ends[row] = at + width + 6
			break
		}
	}
}
