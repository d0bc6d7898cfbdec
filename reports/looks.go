package reports

import (
	"image/color"
	"slices"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// look is the style of a series in every plot. Series differ in colour, shape and dashes, so that any one of these
// suffices to distinguish them.
type look struct {
	color  color.NRGBA
	shape  draw.GlyphDrawer
	dashes []vg.Length
}

// subjectLooks are fixed, so that a subject looks the same on every page. Colours are from Okabe-Ito. Subjects of one
// backend share a hue, and kube-proxy is paler, hollow and dashed. Each layout has its own marks and dashes.
var subjectLooks = map[string]look{
	"synclab/iptables-legacy":    {color.NRGBA{0x00, 0x72, 0xb2, 0xff}, draw.CircleGlyph{}, nil},
	"kube-proxy/iptables-legacy": {color.NRGBA{0x56, 0xb4, 0xe9, 0xff}, hollow{draw.CircleGlyph{}}, dashed},
	"synclab/iptables-nft":       {color.NRGBA{0xd5, 0x5e, 0x00, 0xff}, draw.PyramidGlyph{}, nil},
	"kube-proxy/iptables-nft":    {color.NRGBA{0xe6, 0x9f, 0x00, 0xff}, hollow{draw.TriangleGlyph{}}, dashed},
	"synclab/nftables":           {color.NRGBA{0x00, 0x9e, 0x73, 0xff}, draw.BoxGlyph{}, nil},

	"synclab/iptables-legacy-tree": {color.NRGBA{0x00, 0x40, 0x5f, 0xff}, diamond{}, []vg.Length{2, 2}},
	"synclab/iptables-nft-tree":    {color.NRGBA{0xa3, 0x00, 0x1f, 0xff}, draw.TriangleGlyph{}, []vg.Length{2, 2}},
	"kube-proxy/nftables":          {color.NRGBA{0xcc, 0x79, 0xa7, 0xff}, hollow{draw.SquareGlyph{}}, dashed},
}

// otherLooks are for subjects without a look: other proxiers, and further runs of one subject.
var otherLooks = []look{
	{color.NRGBA{0x33, 0x22, 0x88, 0xff}, draw.CrossGlyph{}, []vg.Length{2, 2.5}},
	{color.NRGBA{0x6b, 0x72, 0x7b, 0xff}, draw.PlusGlyph{}, []vg.Length{8, 3, 2, 3}},
}

// giveLooks gives every series its subject's look if that is free, else an unused one.
func giveLooks(all []*series) {
	used := map[color.NRGBA]bool{}
	var later []*series
	for _, one := range all {
		if l, ok := subjectLooks[one.subject]; ok && !used[l.color] {
			one.look, used[l.color] = l, true
			continue
		}
		later = append(later, one)
	}
	free := slices.Clone(otherLooks)
	for _, name := range []string{"synclab/iptables-legacy", "synclab/iptables-nft", "synclab/nftables",
		"synclab/iptables-legacy-tree", "synclab/iptables-nft-tree", "kube-proxy/nftables", "kube-proxy/iptables-nft", "kube-proxy/iptables-legacy"} {
		free = append(free, subjectLooks[name])
	}
	// Runs of known subjects take strong colours before the two reserved for other proxiers.
	if len(later) > 0 && !slices.ContainsFunc(later, func(s *series) bool { return strings.HasPrefix(s.subject, "exec:") }) {
		free = append(free[len(otherLooks):], otherLooks...)
	}
	free = slices.DeleteFunc(free, func(l look) bool { return used[l.color] })
	for i, one := range later {
		if len(free) == 0 {
			one.look = otherLooks[i%len(otherLooks)]
			continue
		}
		one.look = free[i%len(free)]
	}
}

// diamond is a filled square that stands on a corner.
type diamond struct{}

// DrawGlyph implements draw.GlyphDrawer.
func (diamond) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	r := style.Radius * 1.25
	c.FillPolygon(style.Color, []vg.Point{{X: at.X + r, Y: at.Y}, {X: at.X, Y: at.Y + r}, {X: at.X - r, Y: at.Y}, {X: at.X, Y: at.Y - r}})
}

// color returns the colour of the i-th series.
func (s *Summary) color(i int) color.NRGBA {
	if all := s.collected.series; i < len(all) {
		return all[i].look.color
	}
	return otherLooks[0].color
}

func (s *Summary) look(i int) look { return s.collected.series[i].look }
