package figure

import (
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Look is the style of a series in every plot. Series differ in colour, shape and dashes, so that any one of these
// suffices to distinguish them.
type Look struct {
	Color  color.NRGBA
	Shape  draw.GlyphDrawer
	Dashes []vg.Length
}

// subjectLooks are fixed, so that a subject looks the same on every page. Colours are from Okabe-Ito. Subjects of one
// backend share a hue, and kube-proxy is paler, hollow and dashed. Each layout has its own marks and dashes.
var subjectLooks = map[string]Look{
	"synclab/iptables-legacy":    {color.NRGBA{0x00, 0x72, 0xb2, 0xff}, draw.CircleGlyph{}, nil},
	"kube-proxy/iptables-legacy": {color.NRGBA{0x56, 0xb4, 0xe9, 0xff}, Hollow{draw.CircleGlyph{}}, Dashed},
	"synclab/iptables-nft":       {color.NRGBA{0xd5, 0x5e, 0x00, 0xff}, draw.PyramidGlyph{}, nil},
	"kube-proxy/iptables-nft":    {color.NRGBA{0xe6, 0x9f, 0x00, 0xff}, Hollow{draw.TriangleGlyph{}}, Dashed},
	"synclab/nftables":           {color.NRGBA{0x00, 0x9e, 0x73, 0xff}, draw.BoxGlyph{}, nil},

	"synclab/iptables-legacy-tree": {color.NRGBA{0x00, 0x40, 0x5f, 0xff}, diamond{}, []vg.Length{2, 2}},
	"synclab/iptables-nft-tree":    {color.NRGBA{0xa3, 0x00, 0x1f, 0xff}, draw.TriangleGlyph{}, []vg.Length{2, 2}},
	"kube-proxy/nftables":          {color.NRGBA{0xcc, 0x79, 0xa7, 0xff}, Hollow{draw.SquareGlyph{}}, Dashed},
}

// OtherLooks are for subjects without a look: other proxiers, and further runs of one subject.
var OtherLooks = []Look{
	{color.NRGBA{0x33, 0x22, 0x88, 0xff}, draw.CrossGlyph{}, []vg.Length{2, 2.5}},
	{color.NRGBA{0x6b, 0x72, 0x7b, 0xff}, draw.PlusGlyph{}, []vg.Length{8, 3, 2, 3}},
}

// GiveLooks gives every series, named by its subject, the subject's look if that is free, else an unused one.
func GiveLooks(subjects []string) []Look {
	looks := make([]Look, len(subjects))
	used := map[color.NRGBA]bool{}
	var later []int
	for i, subject := range subjects {
		if l, ok := subjectLooks[subject]; ok && !used[l.Color] {
			looks[i], used[l.Color] = l, true
			continue
		}
		later = append(later, i)
	}
	free := slices.Clone(OtherLooks)
	for _, name := range []string{"synclab/iptables-legacy", "synclab/iptables-nft", "synclab/nftables",
		"synclab/iptables-legacy-tree", "synclab/iptables-nft-tree", "kube-proxy/nftables", "kube-proxy/iptables-nft", "kube-proxy/iptables-legacy"} {
		free = append(free, subjectLooks[name])
	}
	// Runs of known subjects take strong colours before the two reserved for other proxiers.
	if len(later) > 0 && !slices.ContainsFunc(later, func(i int) bool { return strings.HasPrefix(subjects[i], "exec:") }) {
		free = append(free[len(OtherLooks):], OtherLooks...)
	}
	free = slices.DeleteFunc(free, func(l Look) bool { return used[l.Color] })
	if len(free) == 0 {
		free = OtherLooks
	}
	for i, at := range later {
		looks[at] = free[i%len(free)]
	}
	return looks
}

// diamond is a filled square that stands on a corner.
type diamond struct{}

// DrawGlyph implements draw.GlyphDrawer.
func (diamond) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	r := style.Radius * 1.25
	c.FillPolygon(style.Color, []vg.Point{{X: at.X + r, Y: at.Y}, {X: at.X, Y: at.Y + r}, {X: at.X - r, Y: at.Y}, {X: at.X, Y: at.Y - r}})
}

// Hollow draws outlines, so that overlapping points stay visible.
type Hollow struct{ draw.GlyphDrawer }

// DrawGlyph implements draw.GlyphDrawer.
func (h Hollow) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	c.SetLineStyle(draw.LineStyle{Color: style.Color, Width: 1.4})
	switch h.GlyphDrawer.(type) {
	case draw.CircleGlyph:
		var path vg.Path
		path.Move(vg.Point{X: at.X + style.Radius, Y: at.Y})
		path.Arc(at, style.Radius, 0, 2*math.Pi)
		path.Close()
		c.Stroke(path)
	case draw.TriangleGlyph:
		Outline(c, style, at, 3, math.Pi/2)
	case diamond:
		Outline(c, style, at, 4, 0)
	default:
		Outline(c, style, at, 4, math.Pi/4)
	}
}

func Outline(c *draw.Canvas, style draw.GlyphStyle, at vg.Point, corners int, turn float64) {
	var path vg.Path
	for i := range corners {
		angle := turn + 2*math.Pi*float64(i)/float64(corners)
		corner := vg.Point{X: at.X + style.Radius*1.25*vg.Length(math.Cos(angle)), Y: at.Y + style.Radius*1.25*vg.Length(math.Sin(angle))}
		if i == 0 {
			path.Move(corner)
		} else {
			path.Line(corner)
		}
	}
	path.Close()
	c.Stroke(path)
}

var Dashed = []vg.Length{5, 3}
