package reports

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"path/filepath"
	"strings"

	"synclab/bench/outfile"
)

// AgreementPage is the page of an Agreement, in its run's folder.
const AgreementPage = "twin.html"

//go:embed agreement.html.tmpl
var agreementText string

// agreementTemplate shares tables, style and script with the page of a run.
var agreementTemplate = template.Must(template.Must(pageTemplate.Clone()).New("agreement").Parse(agreementText))

// agreementShown is what the template shows.
type agreementShown struct {
	Title, Subtitle string
	Sentences       []string
	Table           pageTable
	Figures         []pageFigure
	Remarks, Method []string
	Head            RunHead
}

// write the plots and the page.
func (a *Agreement) write(out string, o AgreementOptions) error {
	for _, f := range append([]*figure{a.scatter()}, a.distributions()...) {
		one, err := f.save(out, Options{NoPNG: o.NoPNG})
		if err != nil {
			return err
		}
		a.plots = append(a.plots, one)
	}
	p := agreementShown{
		Title: "The twin beside run " + a.Run, Sentences: a.sentences(), Table: a.pageTable(), Remarks: a.Remarks, Method: a.method(), Head: a.head,
		Subtitle: fmt.Sprintf("%s Taken again through the sync loop in virtual time, with %d seeds.", sentence(a.head.Description), a.Seeds),
	}
	if a.Model != "" {
		p.Subtitle += " Cost model: calibration " + a.Model + "."
	}
	for _, one := range a.plots {
		p.Figures = append(p.Figures, pageFigure{one, inlineSVG(one)})
	}
	for i := range p.Sentences {
		p.Sentences[i] = beforeUnit.ReplaceAllString(p.Sentences[i], "$1\u00a0$2")
	}
	var b bytes.Buffer
	if err := agreementTemplate.Execute(&b, p); err != nil {
		return fmt.Errorf("%s: %w", AgreementPage, err)
	}
	return outfile.Write(filepath.Join(out, AgreementPage), b.Bytes(), 0o644)
}

// sentence begins and ends a description as one.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + strings.TrimSuffix(text[1:], ".") + "."
}

func (a *Agreement) pageTable() pageTable {
	t := pageTable{
		Note: fmt.Sprintf("Network programming latency. Measured: of all repetitions, below it the lowest and the highest of one of them. Twin: median over %d seeds, "+
			"below it the 5th and 95th percentile and the ratio to what was measured; red: more than %.0f %% off. Syncs are of one repetition, from the first change on.", a.Seeds, 100*a.Within),
		Columns: []pageColumn{{Name: "subject"}, {Name: "Services", Numeric: true}, {Name: "setting"}, {Name: "what"}, {Name: "p50", Numeric: true}, {Name: "p90", Numeric: true},
			{Name: "p99", Numeric: true}, {Name: "syncs", Numeric: true}, {Name: "CPU", Numeric: true}, {Name: "way to the node", Numeric: true}, {Name: "within"}},
	}
	for _, c := range a.Cells {
		swatch := template.CSS(fmt.Sprintf("#%02x%02x%02x", c.look.color.R, c.look.color.G, c.look.color.B))
		head := func(what string) []pageCell {
			return []pageCell{{Text: c.Subject, Color: swatch}, intCell(c.Cell.Services), {Text: strings.ReplaceAll(c.Cell.Settings(), "proxy.", "")}, {Text: what}}
		}
		m := c.Measured
		t.Rows = append(t.Rows, append(head("measured"), m.P50.cell(), m.P90.cell(), m.P99.cell(), pageCell{Text: plainCount(m.Syncs), Value: exact(m.Syncs)},
			busyCell(m.CPUShare), pageCell{}, pageCell{}))
		for _, s := range c.Twins {
			verdict := pageCell{Text: "yes"}
			if !s.Within {
				verdict = pageCell{Text: "no", Loud: true}
			}
			syncs := pageCell{Text: plainCount(s.Syncs.Value), Value: exact(s.Syncs.Value)}
			if s.Syncs.Low != nil && *s.Syncs.Low != *s.Syncs.High {
				syncs.Sub = fmt.Sprintf("%s … %s", plainCount(*s.Syncs.Low), plainCount(*s.Syncs.High))
			}
			t.Rows = append(t.Rows, append(head(costTexts[s.Cost]), s.P50.cell(), s.P90.cell(), s.P99.cell(), syncs, busyCell(s.CPUShare), valueCell(s.ToNode, "s"), verdict))
		}
	}
	return t.dropEmpty()
}

func (s Spread) cell() pageCell {
	c := valueCell(s.Value, "s")
	if s.Low != nil {
		c.Sub = strings.ReplaceAll(Format(*s.Low, "s")+" … "+Format(*s.High, "s"), " ", "\u00a0")
	}
	return c
}

func (p Predicted) cell() pageCell {
	c := p.Spread.cell()
	c.Sub += fmt.Sprintf("\n× %.2f", p.Ratio)
	c.Loud = !p.Within
	return c
}

func busyCell(share *float64) pageCell {
	if share == nil {
		return pageCell{Text: "–", Faint: true}
	}
	return pageCell{Text: busyText(share), Value: exact(*share)}
}

// method says how it was compared.
func (a *Agreement) method() []string {
	out := []string{
		"The changes are those of the run, due when they were due there; of which Service each was, the scenario's seed says. The twin is born with the syncs that " +
			"the run had before its first change. From then on the proxier's own schedule and its coalescing decide, and a sync takes what is drawn for it.",
		"Own sync times: each sync takes as long as one of the run's own syncs at about that time which took about as many changes. What is off then is the loop, or chance.",
		"A way to the node is added to each latency: what one of the changes that met the proxier at rest took beyond its sync, in the run for its own sync " +
			"times and in the calibration for the cost model. What a sync does after its last write is part of the next one's wait, and of no latency: the way is shorter by it.",
	}
	if a.Model != "" {
		out = append(out, "Cost model: nothing of this run is in it but the moments at which changes were due, and the syncs before the first one.")
	}
	return out
}
