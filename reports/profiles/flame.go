package profiles

import (
	"fmt"
	"html"
	"strings"

	"synclab/bench/lab/profile"
	"synclab/reports/doc"
)

// The measures of a flame graph, in its own units.
const (
	flameWidth  = 1000.0
	flameRow    = 18.0
	flameLeast  = 1.0  // narrower boxes are left out
	flameDeep   = 48   // rows
	flameLetter = 6.2  // of the font, on average
	flameText   = 11.0 // size
)

// flameColors are the colours of origins.
var flameColors = map[string]string{profile.Kernel: "#E8A33D", profile.Tool: "#D9694C", profile.Proxier: "#7FB069"}

// Flame draws the stacks of a profile as an SVG. Each box is a function; its width is its share of the time, and the boxes
// on it are the functions that it called.
func (p *Profile) Flame() []byte {
	var b strings.Builder
	depth := p.Stacks.depth(p.Seconds())
	height := flameRow*float64(depth) + 4
	fmt.Fprintf(&b, `<svg width="%g" height="%g" viewBox="0 0 %g %g" xmlns="http://www.w3.org/2000/svg" class="flame" font-family="sans-serif" font-size="%g">`,
		flameWidth, height, flameWidth, height, flameText)
	x := 0.0
	for _, c := range p.Stacks.Children {
		c.draw(&b, x, height-flameRow-2, flameWidth/p.Seconds(), p.Seconds())
		x += c.Seconds * flameWidth / p.Seconds()
	}
	b.WriteString("</svg>")
	return []byte(b.String())
}

// Seconds is the mean CPU time of a sync.
func (p *Profile) Seconds() float64 {
	var sum float64
	for _, c := range p.Stacks.Children {
		sum += c.Seconds
	}
	return sum
}

func (n *Node) depth(all float64) int {
	deepest := 0
	for _, c := range n.Children {
		if c.Seconds*flameWidth/all >= flameLeast {
			deepest = max(deepest, 1+c.depth(all))
		}
	}
	return min(deepest, flameDeep)
}

func (n *Node) draw(b *strings.Builder, x, y, scale, all float64) {
	width := n.Seconds * scale
	if width < flameLeast || y < 0 {
		return
	}
	text := html.EscapeString(fmt.Sprintf("%s: %s of a sync, %s", n.Name, percent(n.Seconds/all), doc.Format(n.Seconds, "s")))
	fmt.Fprintf(b, `<rect class="hot" data-tip="%s" x="%.1f" y="%.1f" width="%.1f" height="%g" style="fill:%s"><title>%s</title></rect>`,
		text, x, y, max(width-0.5, 0.5), flameRow-1, flameColors[n.Origin], text)
	if letters := int((width - 6) / flameLetter); letters >= 3 {
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" fill="#111" pointer-events="none">%s</text>`, x+3, y+flameText+1.5, html.EscapeString(cut(n.Name, letters)))
	}
	b.WriteString("\n")
	for _, c := range n.Children {
		c.draw(b, x, y-flameRow, scale, all)
		x += c.Seconds * scale
	}
}

func percent(share float64) string { return fmt.Sprintf("%.3g %%", 100*share) }

// cut shortens a name. The end of a Go name says more than its path.
func cut(name string, letters int) string {
	if i := strings.LastIndex(name, "/"); i >= 0 && strings.Contains(name[i:], ".") {
		name = name[i+1:]
	}
	if runes := []rune(name); len(runes) > letters {
		return string(runes[:letters-1]) + "…"
	}
	return name
}
