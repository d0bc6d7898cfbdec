package doc

import (
	"bytes"
	"fmt"
	"html/template"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	svgSize  = regexp.MustCompile(`<svg width="[^"]*" height="[^"]*"`)
	svgColor = regexp.MustCompile(`#[0-9A-Fa-f]{6}`)
	svgStyle = regexp.MustCompile(`style="[^"]*"`)
)

// inline is the plot's SVG without its XML head. The page sets its width and, in the dark, other colours. vgsvg and
// package figure escape all texts.
func (p Plot) inline() template.HTML {
	markup := p.Markup
	if i := bytes.Index(markup, []byte("<svg")); i >= 0 {
		markup = markup[i:]
	}
	role := "img"
	if p.Places != "" {
		role = "group" // a picture has no parts for those who read with their ears
		if i := bytes.LastIndex(markup, []byte("</svg>")); i >= 0 {
			markup = slices.Concat(markup[:i], []byte(p.Places), markup[i:])
		}
	}
	open := fmt.Sprintf(`<svg role="%s" aria-label="%s"`, role, template.HTMLEscapeString(p.Title))
	markup = svgSize.ReplaceAllLiteral(markup, []byte(open))
	markup = svgStyle.ReplaceAllFunc(markup, func(style []byte) []byte {
		return svgColor.ReplaceAllFunc(style, func(color []byte) []byte {
			color = bytes.ToUpper(color)
			return fmt.Appendf(nil, "var(--p-%s,%s)", color[1:], color)
		})
	})
	return template.HTML(markup) //nolint:gosec // drawn by this program
}

// spark draws a cell's values as a small line from 0 to their maximum. The cell's text says what they are. With intervals,
// it begins higher, at most at 60 % of the maximum: noise stays small, and a change is seen.
func spark(c Cell) template.HTML {
	if len(c.Spark) < 2 {
		return ""
	}
	const width, height, rim = 112.0, 24.0, 3.0
	least, most := 0.0, slices.Max(c.Spark)
	if len(c.Spans) > 0 {
		least = slices.Min(c.Spark)
	}
	for _, span := range c.Spans {
		least, most = min(least, span[0]), max(most, span[1])
	}
	least = min(least, 0.6*most)
	at := func(i int, v float64) (x, y float64) {
		y = height - rim
		if most > least {
			y -= (height - 2*rim) * (v - least) / (most - least)
		}
		return rim + (width-2*rim)*float64(i)/float64(len(c.Spark)-1), y
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="spark" viewBox="0 0 %g %g" aria-hidden="true">`, width, height)
	for i, span := range c.Spans {
		x, low := at(i, span[0])
		_, high := at(i, span[1])
		fmt.Fprintf(&b, `<path d="M%.1f %.1fV%.1f"/>`, x, low, high)
	}
	b.WriteString(`<polyline points="`)
	for i, v := range c.Spark {
		x, y := at(i, v)
		fmt.Fprintf(&b, "%.1f,%.1f ", x, y)
	}
	b.WriteString(`"/>`)
	for _, i := range append(slices.Clone(c.Marks), len(c.Spark)-1) {
		x, y := at(i, c.Spark[i])
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="2.5"/>`, x, y)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // numbers
}

// dark is a style sheet with the colours of all plots on a dark ground.
func (d *Document) dark() template.CSS {
	var used []string
	for _, section := range d.Sections {
		for _, block := range section.Blocks {
			for _, plot := range block.Plots {
				for _, style := range svgStyle.FindAll(plot.Markup, -1) {
					for _, color := range svgColor.FindAll(style, -1) {
						used = append(used, strings.ToUpper(string(color[1:])))
					}
				}
			}
		}
	}
	if len(used) == 0 {
		return ""
	}
	slices.Sort(used)
	var b strings.Builder
	b.WriteString("@media screen and (prefers-color-scheme: dark) { :root {")
	for _, color := range slices.Compact(used) {
		fmt.Fprintf(&b, " --p-%s:%s;", color, darkened(color))
	}
	b.WriteString(" } }\n")
	return template.CSS(b.String()) //nolint:gosec // hexadecimal numbers
}

// ground is the colour of a card in the dark (--card in page.css).
var ground = [3]float64{0x1c, 0x20, 0x25}

// darkened returns the colour that stands for one of a light page. White becomes the ground, black nearly white; a hue
// stays, and is made paler until it stands out from the ground by 4.5 to 1.
func darkened(color string) string {
	var c [3]float64
	for i := range c {
		v, _ := strconv.ParseUint(color[2*i:2*i+2], 16, 8)
		c[i] = float64(v)
	}
	if slices.Max(c[:])-slices.Min(c[:]) < 0x18 { // grey
		share := (0xff - (c[0]+c[1]+c[2])/3) / (0xff - 0x22)
		for i := range c {
			c[i] = min(ground[i]+share*(0xe4-ground[i]), 0xff)
		}
	} else {
		for step := 0; step < 20 && contrast(c, ground) < 4.5; step++ {
			for i := range c {
				c[i] += (0xff - c[i]) / 10
			}
		}
	}
	return fmt.Sprintf("#%02X%02X%02X", int(c[0]), int(c[1]), int(c[2]))
}

// contrast is the ratio of two colours' luminances, as WCAG 2 defines it.
func contrast(a, b [3]float64) float64 {
	light := func(c [3]float64) (sum float64) {
		for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
			v := c[i] / 255
			if v <= 0.04045 {
				v /= 12.92
			} else {
				v = math.Pow((v+0.055)/1.055, 2.4)
			}
			sum += weight * v
		}
		return sum + 0.05
	}
	x, y := light(a), light(b)
	return max(x, y) / min(x, y)
}
