package reports

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"synclab/bench/outfile"
	"synclab/reports/capacity"
	"synclab/reports/model"
)

//go:embed capacity_page.html.tmpl
var capacityPageText string

// capacityTemplate shares tables, style and script with the page of a run.
var capacityTemplate = template.Must(template.Must(pageTemplate.Clone()).New("capacity").Parse(capacityPageText))

// capacityReport is an answer, and the looks of its subjects.
type capacityReport struct {
	*capacity.Answer
	looks []look // of each subject
}

// capacityPage is the data of the template.
type capacityPage struct {
	Title, Subtitle string
	Words, Remarks  []string
	Bases           []basisLook
	Answer          pageTable
	Asked           [][2]string
	Sections        []capacitySection
	Downloads       []download
	Raw             []pageTable
}

type capacitySection struct {
	ID, Short, Title string
	Break            bool // on a new sheet in print
	Notes            []string
	Figures          []pageFigure
	Tables, Folded   []pageTable
	List             []string
	Command          string
	Facts            [][2]string

	drawn []*figure
}

// download is a file embedded in the page.
type download struct {
	Name, Text string
	URL        template.URL
}

// BuildCapacity writes the report of an answer into a folder: capacity.html, which is self-contained; capacity.md;
// capacity.csv, frontier.csv and limits.csv; and the plots. The same answer makes the same bytes.
func BuildCapacity(a *capacity.Answer, out string, opts Options) error {
	if len(a.Subjects) == 0 {
		return errors.New("capacity page: the answer has no subjects")
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	r := newCapacityReport(a)
	files, err := r.csvFiles()
	if err != nil {
		return err
	}
	page := r.page()
	for i := range page.Sections {
		if err := page.Sections[i].draw(out, opts); err != nil {
			return err
		}
	}
	for _, f := range files {
		page.Downloads = append(page.Downloads, download{f.name, f.text,
			template.URL("data:text/csv;charset=utf-8;base64," + base64.StdEncoding.EncodeToString(f.content))}) //nolint:gosec // written by this package
		if err := outfile.Write(filepath.Join(out, f.name), f.content, 0o644); err != nil {
			return err
		}
	}
	var b bytes.Buffer
	if err := capacityTemplate.Execute(&b, page); err != nil {
		return fmt.Errorf("%s: %w", CapacityPage, err)
	}
	if err := outfile.Write(filepath.Join(out, CapacityPage), b.Bytes(), 0o644); err != nil {
		return err
	}
	return outfile.Write(filepath.Join(out, "capacity.md"), []byte(r.markdown()), 0o644)
}

func newCapacityReport(a *capacity.Answer) *capacityReport {
	r := &capacityReport{Answer: a}
	var all []*series
	for _, s := range a.Subjects {
		all = append(all, &series{name: s.Name, subject: s.Name})
	}
	giveLooks(all)
	for _, one := range all {
		r.looks = append(r.looks, one.look)
	}
	return r
}

func (r *capacityReport) swatch(i int) template.CSS {
	c := r.looks[i].color
	return template.CSS(fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B)) //nolint:gosec // three numbers
}

func (r *capacityReport) subjectCell(i int) pageCell {
	return pageCell{Text: r.Subjects[i].Name, Color: r.swatch(i)}
}

// measuredSubject returns the model of a subject; nil if there is none.
func (r *capacityReport) measuredSubject(name string) *model.Subject {
	if r.Model == nil {
		return nil
	}
	s, err := r.Model.Subject(name)
	if err != nil {
		return nil
	}
	return s
}

func (r *capacityReport) page() *capacityPage {
	p := &capacityPage{Title: "How far can this cluster grow?", Subtitle: r.subtitle(), Remarks: r.remarks(), Bases: basisLooks,
		Answer: r.answerTable(), Asked: r.asked(), Raw: []pageTable{r.curveTable(), r.frontierTable(-1)}}
	for _, words := range r.Words {
		p.Words = append(p.Words, beforeUnit.ReplaceAllString(words, "$1\u00a0$2"))
	}
	for _, section := range []*capacitySection{r.frontierSection(), r.curvesSection(), r.validationSection(), r.sensitivitySection(),
		r.growthSection(), r.backendSection(), r.assumptionsSection()} {
		if section != nil {
			p.Sections = append(p.Sections, *section)
		}
	}
	return p
}

// remarks are those of the answer and of its subjects. A remark on several subjects appears once.
func (r *capacityReport) remarks() []string {
	out := slices.Clone(r.Remarks)
	of := map[string][]string{}
	var order []string
	for _, s := range r.Subjects {
		for _, remark := range s.Remarks {
			if of[remark] == nil {
				order = append(order, remark)
			}
			of[remark] = append(of[remark], s.Name)
		}
	}
	for _, remark := range order {
		out = append(out, joinWords(of[remark])+": "+remark)
	}
	return out
}

// subtitle describes the cluster of today and the target.
func (r *capacityReport) subtitle() string {
	text := "Today: " + clusterText(r.Question.Today) + "."
	if r.Target != nil {
		text += " To become: " + clusterText(*r.Target) + "."
	}
	return beforeUnit.ReplaceAllString(text, "$1\u00a0$2")
}

// draw draws the section's plots, and removes those of an earlier page that this page lacks.
func (s *capacitySection) draw(out string, opts Options) error {
	for _, f := range s.drawn {
		one, err := f.save(out, opts)
		if err != nil {
			return err
		}
		s.Figures = append(s.Figures, pageFigure{one, inlineSVG(one)})
	}
	for _, name := range capacityFigures[s.ID] {
		if slices.ContainsFunc(s.drawn, func(f *figure) bool { return f.name == name }) {
			continue
		}
		for _, ending := range []string{".svg", ".png"} {
			if err := os.Remove(filepath.Join(out, name+ending)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// basisLook is one entry of the page's legend.
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
	{model.Extrapolated, "○", "extrapolated ×N", "dashed line", "N times the largest size of the calibration, or a fraction 1/N of the smallest, or N times the changed Services of one sync.",
		`<line x1="1" y1="6" x2="43" y2="6" stroke="currentColor" stroke-width="1.5" stroke-dasharray="5 4" opacity=".75"/>`},
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
