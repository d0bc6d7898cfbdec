package page

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"synclab/reports/capacity"
	"synclab/reports/model"
)

// basisLook is the look of a basis in tables and plots, and its entry in the page's legend.
type basisLook struct {
	Basis      model.Basis
	Mark, Name string
	Line, Text string
	Drawn      template.HTML
}

var basisLooks = []basisLook{
	{model.Measured, "●", "measured", "filled mark", "at exactly this size, in the calibration.",
		`<line x1="1" y1="6" x2="43" y2="6" stroke="currentColor" stroke-width="2"/><circle cx="22" cy="6" r="4.5" fill="currentColor"/>`},
	{model.Interpolated, "◐", "interpolated", "solid line", "within the sizes of the calibration, by the fitted cost model.",
		`<line x1="1" y1="6" x2="43" y2="6" stroke="currentColor" stroke-width="2"/>`},
	{model.Extrapolated, "○", "extrapolated ×N", "dashed line",
		"N times the largest size of the calibration, or a fraction 1/N of the smallest, or N times the changed Services of one sync.",
		`<line x1="1" y1="6" x2="43" y2="6" stroke="currentColor" stroke-width="1.5" stroke-dasharray="5 4" opacity=".75"/>`},
}

// basesLine is the legend on one line.
const basesLine = "● measured, ◐ interpolated, ○ extrapolated (× the largest measured size, or below the smallest)."

var basesTemplate = template.Must(template.New("bases").Parse(
	`<div class="bases" role="group" aria-label="Basis of numbers"><p>The basis of each number, in every table and plot of this page:</p>
{{range .}}<div><svg width="44" height="12" viewBox="0 0 44 12" role="img" aria-label="{{.Line}}">{{.Drawn}}</svg>` +
		`<span><b>{{.Mark}} {{.Name}}</b>: {{.Text}}</span></div>{{end}}
</div>
`))

// basesHTML is the legend of the page.
func basesHTML() string { return markup(basesTemplate, basisLooks) }

// markup fills a template of the page. Only a mistake in this program can make it fail.
func markup(t *template.Template, data any) string {
	var b strings.Builder
	if err := t.Execute(&b, data); err != nil {
		panic(err)
	}
	return b.String()
}

// basisMark is the sign of a basis; empty for an estimate without one.
func basisMark(b model.Basis) string {
	for _, look := range basisLooks {
		if look.Basis == b {
			return look.Mark
		}
	}
	return ""
}

// marked puts the sign of a basis before a text.
func marked(b model.Basis, text string) string {
	return strings.TrimSpace(basisMark(b) + "\u00a0" + text)
}

// basisText names the basis of an estimate: "extrapolated ×2.4".
func basisText(e capacity.Estimate) string {
	if times := strings.TrimSuffix(fmt.Sprintf("%.1f", e.Beyond), ".0"); e.Basis == model.Extrapolated && e.Beyond > 1 && times != "1" {
		text := string(e.Basis) + " ×" + times
		switch {
		case e.Below:
			text += " below"
		case e.Changed:
			text += " in changes per sync"
		}
		return text
	}
	return string(e.Basis)
}

// worseBasis returns the less certain of two bases.
func worseBasis(a, b model.Basis) model.Basis {
	order := []model.Basis{model.Measured, model.Interpolated, model.Extrapolated}
	if slices.Index(order, a) >= slices.Index(order, b) {
		return a
	}
	return b
}
