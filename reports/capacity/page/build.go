package page

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"synclab/bench/outfile"
	"synclab/reports/capacity"
	"synclab/reports/doc"
	"synclab/reports/figure"
	"synclab/reports/model"
)

// report is an answer, and the looks of its subjects.
type report struct {
	*capacity.Answer
	looks   []figure.Look             // of each subject
	figures map[string]*figure.Figure // the plots of the document, by name
}

// Build writes the report of an answer into a folder: capacity.html, which is self-contained; capacity.md;
// capacity.csv, frontier.csv and limits.csv; and the plots as SVG, with png also as PNG. The same answer makes the same
// bytes.
func Build(a *capacity.Answer, out string, png bool) error {
	if len(a.Subjects) == 0 {
		return errors.New("capacity page: the answer has no subjects")
	}
	folder, err := outfile.MakeFolder(out)
	if err != nil {
		return err
	}
	defer folder.Close()
	r := newReport(a)
	d := r.document()
	if err := r.draw(d, folder, png); err != nil {
		return err
	}
	for _, f := range r.csvFiles() {
		if err := folder.Write(f.name, f.content, 0o644); err != nil {
			return err
		}
	}
	for _, output := range []struct {
		name  string
		write func(io.Writer) error
	}{{CapacityPage, d.Page}, {"capacity.md", d.Markdown}} {
		var b bytes.Buffer
		if err := output.write(&b); err != nil {
			return fmt.Errorf("%s: %w", output.name, err)
		}
		if err := folder.Write(output.name, b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func newReport(a *capacity.Answer) *report {
	r := &report{Answer: a, figures: map[string]*figure.Figure{}}
	var names []string
	for _, s := range a.Subjects {
		names = append(names, s.Name)
	}
	r.looks = figure.GiveLooks(names)
	return r
}

const title = "How far can this cluster grow?"

// Verdict is the beginning of the report, for a terminal: the answer in a few lines.
func Verdict(a *capacity.Answer) *doc.Document {
	return &doc.Document{Title: title, Sections: []doc.Section{newReport(a).verdictSection()}}
}

// document is the report. Its plots have no content until draw draws them.
func (r *report) document() *doc.Document {
	return &doc.Document{Kind: "synclab plan", Title: title, Subtitle: doc.Sentence(planSubtitle, r),
		Sections: []doc.Section{r.verdictSection(), r.settingsSection(), r.answerSection(), r.curvesSection(), r.frontierSection(), r.validationSection(), r.sensitivitySection(),
			r.growthSection(), r.backendSection(), r.assumptionsSection(), r.rawSection()},
		Footer: "Derived from plan.json and model.json by synclab. <code>synclab report</code> on their folder makes this page again."}
}

// plots is a block of figures; nil figures are left out.
func (r *report) plots(figures ...*figure.Figure) doc.Block {
	b := doc.Block{On: doc.Page}
	for _, f := range figures {
		if f != nil {
			r.figures[f.Name] = f
			b.Plots = append(b.Plots, doc.Plot{Name: f.Name, Title: f.Title, Caption: f.Caption})
		}
	}
	return b
}

// draw draws the document's plots into a folder, and removes those of an earlier page that this page lacks.
func (r *report) draw(d *doc.Document, out *outfile.Folder, png bool) error {
	for _, s := range d.Sections {
		for _, b := range s.Blocks {
			for i, p := range b.Plots {
				drawn, err := r.figures[p.Name].Save(out, png)
				if err != nil {
					return err
				}
				b.Plots[i].Markup, b.Plots[i].Places = drawn.Markup, drawn.Places
			}
		}
	}
	for _, name := range capacityFigures {
		if r.figures[name] != nil {
			continue
		}
		for _, ending := range []string{".svg", ".png"} {
			if err := out.Remove(name + ending); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *report) subjectCell(i int) doc.Cell {
	return doc.Cell{Text: r.Subjects[i].Name, Color: r.looks[i].Color}
}

// measuredSubject returns the model of a subject; nil if there is none.
func (r *report) measuredSubject(name string) *model.Subject {
	if r.Model == nil {
		return nil
	}
	s, err := r.Model.Subject(name)
	if err != nil {
		return nil
	}
	return s
}

// remarks are those of the answer and of its subjects. A remark on several subjects appears once.
func (r *report) remarks() []string {
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
		out = append(out, doc.JoinWords(of[remark])+": "+remark)
	}
	return out
}
