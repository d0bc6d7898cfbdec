package page

import (
	"fmt"
	"strings"

	"synclab/reports/capacity"
	"synclab/reports/doc"
)

// verdictSection has the answer in a few lines, then the figures of all subjects, and the settings to copy.
func (r *report) verdictSection() doc.Section {
	s := doc.Section{ID: "verdict", Title: "Verdict"}
	s.Add(doc.Block{Verdict: r.verdict()}, doc.Block{On: doc.Page, Soft: true, Note: basesLine}, doc.Block{On: doc.Page, Tiles: r.tiles()})
	return s
}

// evaluated returns the evaluation that the question is about: of the target, else of today.
func evaluated(s capacity.SubjectAnswer) (o capacity.Evaluation, what string) {
	if s.Target != nil {
		return *s.Target, "the target"
	}
	return s.Today, "today's cluster"
}

// verdict judges the subject in use, its settings, and whether another subject goes further.
func (r *report) verdict() []doc.Line {
	use := r.Subjects[0]
	o, what := evaluated(use)
	var violated, unsure, unknown []string
	for _, name := range r.givenSLOs() {
		text := fmt.Sprintf("%s %s", sloNamed(name).short, r.boundText(name))
		e, ok := o.Quantities[name]
		if !ok {
			unknown = append(unknown, sloNamed(name).short)
			continue
		}
		text += fmt.Sprintf(" (%s)", doc.TrimTick(doc.Format(e.Median, sloNamed(name).unit)))
		switch metText(o, name) {
		case "no":
			violated = append(violated, text)
		case "perhaps":
			unsure = append(unsure, text)
		}
	}
	at := r.count(o.Size) + " " + string(r.Unit)
	var first doc.Line
	switch {
	case len(r.givenSLOs()) == 0:
		first = doc.Line{Level: doc.Info, Text: fmt.Sprintf("%s at %s, %s: no SLO was given.", use.Name, at, what)}
	case len(violated) > 0:
		first = doc.Line{Level: doc.Bad, Text: fmt.Sprintf("No: at %s, %s, %s violates %s, with the settings in use.", at, what, use.Name, doc.JoinWords(violated))}
	case len(unsure) > 0:
		first = doc.Line{Level: doc.Care, Text: fmt.Sprintf("Perhaps: at %s, %s, %s may violate %s, with the settings in use.", at, what, use.Name, doc.JoinWords(unsure))}
	default:
		first = doc.Line{Level: doc.Good, Text: fmt.Sprintf("Yes: at %s, %s, %s meets every SLO, with the settings in use.", at, what, use.Name)}
	}
	if len(unknown) > 0 {
		first.Text = strings.TrimSuffix(first.Text, ".") + "; not measured: " + doc.JoinWords(unknown) + "."
		if first.Level == doc.Good {
			first.Level = doc.Care
		}
	}
	out := []doc.Line{first, {Level: doc.Info, Text: fmt.Sprintf("With the recommended settings, %s reaches %s.", use.Name, r.reach(use))}}
	if other := r.furthest(); other != nil {
		out = append(out, doc.Line{Level: doc.Info, Text: fmt.Sprintf("Of the others, %s goes furthest, with its recommended settings: %s.", other.Name, r.reach(*other))})
	}
	return out
}

// reach is how large the cluster may become with a subject: "6,300 Services (extrapolated ×1.6); memory is violated first".
func (r *report) reach(s capacity.SubjectAnswer) string {
	cell := r.limitCell(s.Largest)
	if s.Largest.SLO == "" {
		return "an unknown size: no quantity of an SLO was measured"
	}
	if s.Largest.Never && !s.Largest.Smaller {
		return "no evaluated size without violating an SLO"
	}
	text := r.largestText(s.Largest) + " " + string(r.Unit)
	if cell.Sub != "" {
		text += " (" + strings.ReplaceAll(cell.Sub, "\n", ", ") + ")"
	}
	if !s.Largest.Unbounded {
		text += "; " + sloNamed(s.Largest.SLO).short + " is violated first"
	}
	return text
}

// furthest is the other subject that reaches the largest size; nil if none goes further than the one in use.
func (r *report) furthest() *capacity.SubjectAnswer {
	best := 0
	for i, s := range r.Subjects {
		if s.Largest.SLO != "" && s.Largest.Size.Median > r.Subjects[best].Largest.Size.Median {
			best = i
		}
	}
	if best == 0 {
		return nil
	}
	return &r.Subjects[best]
}

// tiles have the largest cluster, and latency, CPU and memory at the size of the question.
func (r *report) tiles() []doc.Tile {
	largest := doc.Tile{Title: "Largest cluster", Note: string(r.Unit) + " that meet every SLO, with the recommended settings"}
	most := 0.0
	for _, s := range r.Subjects {
		most = max(most, s.Largest.Size.Median)
	}
	for i, s := range r.Subjects {
		cell := r.limitCell(s.Largest)
		largest.Rows = append(largest.Rows, doc.TileRow{Name: r.subjectCell(i), Value: cell, Share: s.Largest.Size.Median / max(most, 1)})
	}
	out := []doc.Tile{largest}
	for _, name := range []string{capacity.ProgrammingP99, capacity.CPU, capacity.Memory} {
		q := sloNamed(name)
		o, what := evaluated(r.Subjects[0])
		t := doc.Tile{Title: doc.UpperFirst(q.short), Note: fmt.Sprintf("at %s %s, %s", r.count(o.Size), r.Unit, what)}
		if r.Question.SLOs.Bound(name) > 0 {
			t.Note += "; SLO " + r.boundText(name)
		}
		most := 0.0
		for _, s := range r.Subjects {
			o, _ := evaluated(s)
			most = max(most, o.Quantities[name].Median)
		}
		for i, s := range r.Subjects {
			o, _ := evaluated(s)
			if _, ok := o.Quantities[name]; !ok {
				continue
			}
			row := doc.TileRow{Name: r.subjectCell(i), Value: sloCell(o, name), Share: o.Quantities[name].Median / most}
			if metText(o, name) == "no" {
				row.Level = doc.Bad
			}
			t.Rows = append(t.Rows, row)
		}
		if len(t.Rows) > 0 {
			out = append(out, t)
		}
	}
	return out
}

// settingsSection has the recommended settings as a KubeProxyConfiguration to copy.
func (r *report) settingsSection() doc.Section {
	s := doc.Section{ID: "settings", Title: "What to set", Short: "Settings"}
	for i, one := range r.Subjects {
		text := settings(one)
		if text == "" {
			continue
		}
		b := doc.Block{On: doc.Page, Heading: one.Name, Code: text, Folded: i > 0}
		if len(one.Recommended.Outlook.Violated) > 0 {
			b.Note = "No evaluated setting meets every SLO. This is the one that goes furthest."
		}
		if i == 0 {
			b.On = doc.Page | doc.Markdown
		}
		s.Add(b)
	}
	return s
}

// settings is the part of a KubeProxyConfiguration that a plan recommends; empty for programs that do not read one.
func settings(s capacity.SubjectAnswer) string {
	_, mode, _ := strings.Cut(s.Name, "/")
	mode, _, _ = strings.Cut(mode, "+")
	section := mode
	switch {
	case strings.HasPrefix(s.Name, "exec:"), mode == "userspace":
		return ""
	case strings.HasPrefix(mode, "iptables"):
		mode, section = "iptables", "iptables"
	}
	text := fmt.Sprintf("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: %s\n%s:\n  minSyncPeriod: %s\n", mode, section, s.Recommended.Policy.MinSyncPeriod)
	if s.MemoryLimit > 0 {
		text += fmt.Sprintf("# resources.limits.memory of its pod: %dMi\n", (s.MemoryLimit+1<<20-1)>>20)
	}
	return text
}
