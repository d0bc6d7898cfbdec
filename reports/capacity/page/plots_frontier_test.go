package page

import (
	"image/color"
	"testing"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/recorder"

	"synclab/reports/figure"
)

// Each mark has its subject's fill colour, independent of earlier marks.
func TestFrontierMarksHaveTheirOwnColour(t *testing.T) {
	red, blue := color.NRGBA{0xd0, 0x10, 0x10, 0xff}, color.NRGBA{0x10, 0x10, 0xd0, 0xff}
	for name, shape := range map[string]draw.GlyphDrawer{"triangle": draw.TriangleGlyph{}, "square": draw.SquareGlyph{}, "hollow triangle": figure.Hollow{GlyphDrawer: draw.TriangleGlyph{}}} {
		p := plot.New()
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 3, 0, 3
		var drawn recorder.Canvas
		(&pointLabels{at: []pointLabel{{x: 1, y: 1, look: figure.Look{Color: red, Shape: shape}}, {x: 2, y: 2, look: figure.Look{Color: blue, Shape: shape}}}}).
			Plot(draw.NewCanvas(&drawn, 10*vg.Centimeter, 10*vg.Centimeter), p)
		var current color.Color
		var filled []color.Color
		for _, action := range drawn.Actions {
			switch action := action.(type) {
			case *recorder.SetColor:
				current = action.Color
			case *recorder.Fill:
				filled = append(filled, current)
			}
		}
		if len(filled) != 2 || filled[0] != color.Color(red) || filled[1] != color.Color(blue) {
			t.Errorf("%s: marks are filled with %v; want %v, %v", name, filled, red, blue)
		}
	}
}
