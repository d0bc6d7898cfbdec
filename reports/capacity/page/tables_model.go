package page

import (
	"fmt"
	"math"
	"slices"

	"synclab/reports/doc"
	"synclab/reports/model"
)

// quantityTexts name the quantities of the cost model.
var quantityTexts = map[model.Quantity]string{
	model.Total: "whole sync", model.Plan: "plan", model.Encode: "encode", model.ToolUser: "tool, user", model.ToolSys: "kernel", model.Rest: "rest",
	model.CPU: "CPU time", model.PeakRSS: "memory, proxier", model.ChildPeakRSS: "memory, largest tool",
	model.Rules: "rules", model.Elements: "elements of sets and maps",
	model.FirstPacket: "first packet", model.FirstPacketP99: "first packet, p99",
}

func quantityText(q model.Quantity, kind string) string {
	text := quantityTexts[q]
	if text == "" {
		text = string(q)
	}
	if kind != "" {
		text += ", " + kind
	}
	return text
}

// modelCell names a subject of the calibration, with its swatch if the answer has it.
func (r *report) modelCell(name string) doc.Cell {
	for i, s := range r.Subjects {
		if s.Name == name {
			return r.subjectCell(i)
		}
	}
	return doc.Text(name)
}

// validationTable sums up the errors of predictions, of the phases of syncs or of all other quantities.
func (r *report) validationTable(phases bool) *doc.Table {
	t := &doc.Table{Title: "Cells held out of the fit: errors and coverage",
		Note: "Points: cells that were held out. Error: median of |predicted / measured − 1|. Covered: share of points within their intervals. " +
			"All of these predictions are extrapolated, by up to the factor in “Beyond”.",
		Columns: []doc.Column{{Name: "Subject"}, {Name: "Quantity"}, {Name: "Points", Numeric: true}, {Name: "Fitted up to", Numeric: true},
			{Name: "Held out up to", Numeric: true}, {Name: "Beyond", Numeric: true}, {Name: "Median error", Numeric: true}, {Name: "Covered", Numeric: true},
			{Name: "Accuracy target met"}}}
	if phases {
		t.Title = "The same for the phases of syncs"
	}
	for _, m := range r.Model.Validation.Subjects {
		if phases != slices.Contains([]model.Quantity{model.Plan, model.Encode, model.ToolUser, model.ToolSys, model.Rest}, m.Quantity) {
			continue
		}
		met := doc.Text("yes")
		switch {
		case m.Error > 0.1 && m.Coverage < 0.85:
			met = doc.Cell{Text: "no", Sub: "error and coverage", Loud: true}
		case m.Error > 0.1:
			met = doc.Cell{Text: "no", Sub: "error"}
		case m.Coverage < 0.85:
			met = doc.Cell{Text: "no", Sub: "coverage"}
		}
		t.Add(r.modelCell(m.Subject), doc.Text(quantityText(m.Quantity, m.Kind)), doc.Int(m.Points), doc.Int(m.FitUpTo), doc.Int(m.Largest),
			doc.Cell{Text: marked(model.Extrapolated, fmt.Sprintf("×%.1f", m.Beyond)), Value: doc.Exact(m.Beyond)},
			doc.Cell{Text: fmt.Sprintf("%.1f %%", 100*m.Error), Value: doc.Exact(m.Error)},
			doc.Cell{Text: fmt.Sprintf("%.0f %%", 100*m.Coverage), Value: doc.Exact(m.Coverage)}, met)
	}
	return t
}

// formulasTable shows the fitted formulas of the curves.
func (r *report) formulasTable() *doc.Table {
	t := &doc.Table{Title: "The fitted cost model",
		Note: "s: Services, n: endpoints in all, c: changed Services, c·e: their endpoints, rules: rules in the kernel. " +
			"Errors are means over sizes that were left out of the fit, and over sizes beyond the fit. Their reliability depends on the number of sizes.",
		Columns: []doc.Column{{Name: "Subject"}, {Name: "Quantity"}, {Name: "Formula"}, {Name: "Points", Numeric: true},
			{Name: "Fitted up to, Services", Numeric: true}, {Name: "Error at sizes left out", Numeric: true}, {Name: "Beyond the fit", Numeric: true}}}
	for _, s := range r.Subjects {
		known := r.measuredSubject(s.Name)
		if known == nil {
			continue
		}
		for i := range known.Terms {
			term := &known.Terms[i]
			switch term.Quantity {
			case model.Total, model.CPU, model.PeakRSS, model.ChildPeakRSS, model.Rules, model.Elements, model.FirstPacket, model.FirstPacketP99:
			default:
				continue
			}
			if term.Quantity == model.ChildPeakRSS && term.Kind != model.Full {
				continue
			}
			t.Add(r.modelCell(s.Name), doc.Text(quantityText(term.Quantity, term.Kind)), doc.Text(term.Formula()), doc.Int(term.Points),
				doc.Int(int(math.Round(term.Largest.Services))), doc.Cell{Text: model.ErrorText(term.Score), Value: doc.Exact(term.Score)},
				doc.Cell{Text: model.ErrorText(term.LargestOut), Value: doc.Exact(term.LargestOut)})
		}
	}
	return t
}
