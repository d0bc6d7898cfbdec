package published

import (
	"fmt"
	"slices"
	"strings"

	"synclab/reports/diff"
	"synclab/reports/doc"
)

// Results are the results of several claims.
type Results []Result

// Document is the table of all claims, with the details of each.
func (r Results) Document() *doc.Document {
	d := &doc.Document{Kind: "synclab published", Title: "Published numbers, measured here"}
	all := doc.Section{ID: "claims", Title: "Claims"}
	t := &doc.Table{Columns: []doc.Column{{Name: "Claim"}, {Name: "About", Row: true}, {Name: "Expected", Row: true}, {Name: "Published", Numeric: true},
		{Name: "Measured", Numeric: true}, {Name: "Verdict"}}}
	counts, reasons := map[Verdict]int{}, []string(nil)
	for _, one := range r {
		counts[one.Verdict]++
		if one.Verdict == Differs && one.Why != "" {
			reasons = append(reasons, one.Name+" may differ because of this: "+one.Why+".")
		}
		name, title := doc.Text(one.Name), doc.Text(one.Title)
		if len(one.Values) == 0 {
			t.Add(name, title, doc.None(), doc.None(), doc.None(), doc.Text(string(one.Verdict)+": "+one.Why))
			continue
		}
		for _, v := range one.Values {
			t.Add(name, title, doc.Text(strings.TrimSuffix(v.Say+": "+v.expected(), ": ")), doc.Text(v.format(v.Published)), doc.Text(v.measured()), doc.Text(string(v.Verdict)))
			name, title = doc.Text(""), doc.Text("")
		}
	}
	var each []string
	for _, v := range []Verdict{Agrees, Differs, Undecided, Shown, Cannot} {
		if counts[v] > 0 {
			each = append(each, fmt.Sprintf("%d: %s", counts[v], v))
		}
	}
	all.Add(doc.Block{Note: doc.Plural(len(r), "claim") + ". " + strings.Join(each, ", ") + "."}, doc.Block{Table: t}, doc.Block{List: reasons})
	d.Sections = append(d.Sections, all)
	for _, one := range r {
		d.Sections = append(d.Sections, one.section())
	}
	return d
}

// section has what was published, how, and what of it is compared.
func (r Result) section() doc.Section {
	c := r.Claim
	s := doc.Section{ID: r.Name, Title: r.Name + ": " + c.Title, Short: r.Name}
	because := "a difference may be due to"
	if r.Verdict == Cannot {
		because = "cannot run here"
	}
	facts := [][2]string{{"source", c.Source + " (" + c.Date + ")"}, {"published", c.Published}, {"how", c.Method}, {"on", c.Hardware},
		{"compared", c.Compared}, {because, r.Why}, {"run", r.Folder}}
	facts = slices.DeleteFunc(facts, func(fact [2]string) bool { return fact[1] == "" })
	s.Add(doc.Block{On: doc.Page | doc.Markdown, Folded: true, Heading: "Details", Facts: facts})
	return s
}

// expected writes the bounds.
func (v Value) expected() string {
	switch {
	case v.Verdict == Shown:
		return ""
	case v.To == 0:
		return "at least " + v.format(&v.From)
	case v.From == 0:
		return "at most " + v.format(&v.To)
	}
	return v.format(&v.From) + " to " + v.format(&v.To)
}

// measured writes the value with its interval.
func (v Value) measured() string {
	text := v.format(&v.Measured)
	switch {
	case v.Repetitions == 0:
		return "not measured"
	case v.AtLeast:
		text = "> " + text
	case v.AtMost:
		text = "< " + text
	}
	if v.Low != nil && v.High != nil {
		text += " (" + v.format(v.Low) + "–" + v.format(v.High) + ")"
	}
	return text
}

// format writes a number of the value's unit.
func (v Value) format(x *float64) string {
	switch {
	case x == nil:
		return ""
	case v.Unit == "":
		return diff.FineRatio(*x)
	}
	return doc.Format(*x, v.Unit)
}
