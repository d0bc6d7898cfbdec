package plan

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"synclab/bench/lab/shell"
	"synclab/bench/outfile"
	"synclab/reports/comparison"
	"synclab/reports/doc"
	"synclab/reports/figure"
	"synclab/reports/profiles"
)

// The files of a plan's folder, besides those of its run.
const (
	AnswerFile   = "plan.json"
	CapacityPage = "capacity.html"
)

// Write stores an answer, so that Build can be repeated.
func (a *Answer) Write(dir string) error {
	text, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", AnswerFile, err)
	}
	folder, err := outfile.MakeFolder(dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Write(AnswerFile, append(text, '\n'), 0o644)
}

// Load reads an answer.
func Load(dir string) (*Answer, error) {
	path := filepath.Join(dir, AnswerFile)
	text, err := outfile.Read(path)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	a := &Answer{}
	if err := json.Unmarshal(text, a); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(a.Subjects) == 0 || a.Question.Key == "" || a.Question.SLOs == (comparison.SLOs{}) {
		return nil, fmt.Errorf("%s: not a plan of this version of synclab; plan again: %s", path, cmp.Or(a.Command, "synclab plan"))
	}
	own, err := outfile.Own(dir, path)
	a.Foreign = err != nil || !own || !shell.Calls("synclab", a.Command)
	return a, nil
}

// HasAnswer reports whether a folder has an answer.
func HasAnswer(dir string) bool {
	var a struct{ Subjects []json.RawMessage }
	text, err := outfile.Read(filepath.Join(dir, AnswerFile))
	return err == nil && json.Unmarshal(text, &a) == nil && len(a.Subjects) > 0
}

// questionOf reads the question of a folder's plan, answered or not.
func questionOf(dir string) (q Question, ok bool) {
	var a Answer
	text, err := outfile.Read(filepath.Join(dir, AnswerFile))
	ok = err == nil && json.Unmarshal(text, &a) == nil
	return a.Question, ok
}

// HasKey reports whether a folder has a plan with the key of a question.
func HasKey(dir, key string) bool {
	q, ok := questionOf(dir)
	return ok && q.Key == key
}

// GoesOn reports whether a plan can replace that of a folder: it asks the same, of all of its subjects.
func (q *Question) GoesOn(dir string) bool {
	old, ok := questionOf(dir)
	others := slices.ContainsFunc(old.Subjects, func(name string) bool { return !slices.Contains(q.Subjects, name) })
	return ok && old.Key == q.Key && old.SLOs == q.SLOs && old.Asked.Services == q.Asked.Services && !others
}

// Build writes the page of an answer into a folder: capacity.html, which is self-contained, capacity.md, and the plots as SVG,
// with png also as PNG. The same answer makes the same bytes.
func (a *Answer) Build(out string, png bool) error {
	if len(a.Subjects) == 0 {
		return errors.New("plan: the answer has no subjects")
	}
	folder, err := outfile.MakeFolder(out)
	if err != nil {
		return err
	}
	defer folder.Close()
	var plots []doc.Plot
	for _, f := range a.figures() {
		drawn, err := f.Save(folder, png)
		if err != nil {
			return err
		}
		plots = append(plots, drawn)
	}
	d := a.Document(plots)
	if err := folder.WriteWith(CapacityPage, 0o644, d.Page); err != nil {
		return err
	}
	return folder.WriteWith("capacity.md", 0o644, d.Markdown)
}

// Document is the answer as a document, with plots.
func (a *Answer) Document(plots []doc.Plot) *doc.Document {
	q := &a.Question
	title := "How far can this cluster grow?"
	switch {
	case q.Asked.Services > q.Today.Services:
		title = fmt.Sprintf("Can this cluster grow to %s Services?", count(q.Asked.Services))
	case q.grows():
		title = "Can this cluster become what was asked for?"
	}
	d := &doc.Document{Kind: "synclab plan", Title: title,
		Subtitle: fmt.Sprintf("%s Services, %s, %s changes a second, %s nodes · %s", count(q.Asked.Services), q.Shape, doc.Significant(q.Asked.Rate()), count(q.Asked.Nodes), a.Place),
		Footer:   "Derived from run.json, records.jsonl and plan.json by synclab. <code>synclab report</code> on their folder makes this page again."}
	verdict := doc.Section{ID: "verdict", Title: "Verdict"}
	verdict.Add(doc.Block{Verdict: a.Verdict()}, doc.Block{On: doc.Page, Tiles: a.tiles()})
	chart := doc.Section{ID: "limits", Title: "What was measured, and the SLOs", Short: "Limits"}
	chart.Add(doc.Block{On: doc.Page, Plots: plots})
	next := doc.Section{ID: "next", Title: "What to do next", Short: "Next"}
	next.Add(doc.Block{List: a.next()})
	repeat := doc.Section{ID: "repeat", Title: "How to repeat it", Short: "Repeat"}
	repeat.Add(doc.Block{On: doc.Page | doc.Markdown, Code: cmp.Or(a.Command, "synclab report FOLDER"), Inert: a.Foreign})
	remarks := doc.Section{ID: "remarks", Title: "Caveats and assumptions", Short: "Caveats"}
	remarks.Add(doc.Block{List: a.Remarks}, doc.Block{On: doc.Page | doc.Markdown, List: assumptions})
	why := (&profiles.Report{Growth: a.Growth}).GrowthSection()
	d.Sections = []doc.Section{verdict, a.settingsSection(), chart, a.limitsSection(), why, next, a.cellsSection(), a.playedSection(), remarks, repeat}
	return d
}

func (a *Answer) tiles() []doc.Tile {
	looks := a.looks()
	largest := doc.Tile{Title: "Largest measured cluster", Note: "Services at which every SLO is met"}
	most := 1
	for _, s := range a.Subjects {
		most = max(most, s.Bracket.Met)
	}
	for i, s := range a.Subjects {
		value := doc.Cell{Text: count(s.Bracket.Met), Value: fmt.Sprint(s.Bracket.Met), Sub: string(s.Basis)}
		if s.Bracket.Violated == 0 && s.Bracket.Met > 0 {
			value.Text = "≥ " + value.Text
		}
		if s.Bracket.Met == 0 {
			value = doc.NoneFor(s.Limit(&a.Question))
		}
		largest.Rows = append(largest.Rows, doc.TileRow{Name: doc.Cell{Text: s.Name, Color: looks[i].Color}, Value: value, Share: float64(s.Bracket.Met) / float64(most)})
	}
	out := []doc.Tile{largest}
	for _, one := range slos {
		t := doc.Tile{Title: doc.UpperFirst(one.text), Note: fmt.Sprintf("at the largest size that meets every SLO; SLO ≤ %s", amount(one, one.bound(a.Question.SLOs)))}
		if one.bound(a.Question.SLOs) == 0 {
			continue
		}
		for i := range a.Subjects {
			s := &a.Subjects[i]
			if v, ok := s.Value(one.name, s.Bracket.Met); ok {
				t.Rows = append(t.Rows, doc.TileRow{Name: doc.Cell{Text: s.Name, Color: looks[i].Color}, Value: doc.Cell{Text: v.text(one), Value: doc.Exact(v.V), Sub: "at " + count(s.Bracket.Met)},
					Share: min(1, v.V/one.bound(a.Question.SLOs))})
			}
		}
		if len(t.Rows) > 0 {
			out = append(out, t)
		}
	}
	return out
}

func (a *Answer) settingsSection() doc.Section {
	s := doc.Section{ID: "settings", Title: "What to set", Short: "Settings"}
	for i := range a.Subjects {
		one := &a.Subjects[i]
		if text := one.snippet(); text != "" {
			b := doc.Block{On: doc.Page, Heading: one.Name, Code: text, Note: doc.UpperFirst(one.confirmedText()) + ".", Folded: i > 0}
			if i == 0 {
				b.On = doc.Page | doc.Markdown
			}
			s.Add(b)
		}
	}
	return s
}

func (a *Answer) limitsSection() doc.Section {
	out := doc.Section{ID: "table", Title: "Limits", Dense: true}
	t := &doc.Table{Columns: []doc.Column{{Name: "Subject"}, {Name: "Met at", Numeric: true}, {Name: "Violated at", Numeric: true}, {Name: "Basis"}, {Name: "Violated first"}, {Name: "minSyncPeriod"}, {Name: "Memory limit", Numeric: true}}}
	for i := range a.Subjects {
		s := &a.Subjects[i]
		met, violated, period, memory := doc.None(), doc.None(), doc.None(), doc.None()
		if s.Bracket.Met > 0 {
			met = doc.Int(s.Bracket.Met)
		}
		if s.Bracket.Violated > 0 {
			violated = doc.Int(s.Bracket.Violated)
		}
		if s.Recommended != nil {
			period = doc.Text(s.Recommended.String())
		}
		if s.MemoryLimit > 0 {
			memory = doc.Value(float64(s.MemoryLimit), "B")
		}
		first := s.firstText()
		if s.Error != "" {
			first = "not measured"
		}
		t.Add(doc.Cell{Text: s.Name, Color: a.looks()[i].Color}, met, violated, doc.Text(string(s.Basis)), doc.Text(cmp.Or(first, "none found")), period, memory)
	}
	out.Add(doc.Block{Table: t})
	return out
}

func metText(met bool) string {
	if met {
		return "met"
	}
	return "violated"
}

// cellsSection has every repetition.
func (a *Answer) cellsSection() doc.Section {
	out := doc.Section{ID: "cells", Title: "Every repetition", Short: "Repetitions", Dense: true}
	t := &doc.Table{Columns: []doc.Column{{Name: "Subject"}, {Name: "Services", Numeric: true, Row: true}, {Name: "minSyncPeriod", Row: true}, {Name: "Repetition", Numeric: true, Row: true}}}
	shown := slices.DeleteFunc(slices.Clone(slos), func(one slo) bool {
		return (one.name == Stall || one.name == WriterWait) && one.bound(a.Question.SLOs) == 0
	})
	for _, one := range shown {
		t.Columns = append(t.Columns, doc.Column{Name: doc.UpperFirst(one.text), Short: one.short, Numeric: true})
	}
	t.Columns = append(t.Columns, doc.Column{Name: fmt.Sprintf("Latency p99 of %d s", ChurnSeconds), Numeric: true, Title: "of the changes that were measured, without an hourly full sync"},
		doc.Column{Name: "Full sync", Numeric: true}, doc.Column{Name: "Partial sync", Numeric: true}, doc.Column{Name: "Outcome"})
	for _, s := range a.Subjects {
		for _, c := range s.Cells {
			row := []doc.Cell{doc.Text(s.Name), doc.Int(c.Size), doc.Text(cmp.Or(c.Setting, a.Question.MinSyncPeriod.String())), doc.Int(c.Rep)}
			for _, one := range shown {
				cell := doc.NoneFor("not measured, mostly since the repetition ended before")
				if v, ok := c.Values[one.name]; ok {
					cell = doc.Cell{Text: v.text(one), Value: doc.Exact(v.V), Loud: slices.Contains(c.Violated, one.name)}
				}
				row = append(row, cell)
			}
			t.Add(append(row, doc.Optional(c.Churn, "s"), doc.Optional(c.FullSync, "s"), doc.Optional(c.PartialSync, "s"), doc.Text(metText(len(c.Violated) == 0)))...)
		}
	}
	out.Add(doc.Block{On: doc.Page | doc.Markdown, Table: t})
	return out
}

// playedSection has the settings that were played.
func (a *Answer) playedSection() doc.Section {
	out := doc.Section{ID: "played", Title: "minSyncPeriod in a simulated hour", Short: "minSyncPeriod", Dense: true}
	for i := range a.Subjects {
		s := &a.Subjects[i]
		if len(s.Settings) == 0 {
			continue
		}
		t := &doc.Table{Title: fmt.Sprintf("%s at %s Services", s.Name, count(s.Bracket.Met)),
			Columns: []doc.Column{{Name: "minSyncPeriod"}, {Name: "Latency p50", Numeric: true}, {Name: "Latency p99", Numeric: true}, {Name: "CPUs", Numeric: true}, {Name: "SLOs"}, {Name: "Remark"}}}
		for _, one := range s.Settings {
			var remarks []string
			if one.inUse(&a.Question) {
				remarks = append(remarks, "in use")
			}
			if one.Setting == s.Recommended.Setting {
				remarks = append(remarks, "recommended")
			}
			if one.Beyond > 1 {
				remarks = append(remarks, fmt.Sprintf("syncs of up to %.1f times the measured changes", one.Beyond))
			}
			t.Add(doc.Text(one.String()), doc.Value(one.P50, "s"), doc.Value(one.P99, "s"), doc.Cell{Text: doc.Significant(one.CPU), Value: doc.Exact(one.CPU)}, doc.Text(metText(one.Met)), doc.Text(strings.Join(remarks, "; ")))
		}
		out.Add(doc.Block{On: doc.Page, Table: t, Folded: i > 0})
	}
	return out
}

func (a *Answer) looks() []figure.Look {
	var names []string
	for _, s := range a.Subjects {
		names = append(names, s.Name)
	}
	return figure.GiveLooks(names)
}
