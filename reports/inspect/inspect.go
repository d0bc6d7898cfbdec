// Package inspect shows what is in a node's rules: the report of bench/verify/inspect as a document.
package inspect

import (
	"fmt"
	"strings"

	"synclab/bench/verify/inspect"
	"synclab/reports/doc"
)

// mostServices are shown, mostDiffering with their lines.
const mostServices, mostDiffering = 10, 20

// Document returns the report. measure are the commands that measure a sync of that size.
func Document(r *inspect.Report, measure []string) *doc.Document {
	var all []doc.Section
	add := func(id, title string, blocks ...doc.Block) {
		all = append(all, doc.Section{ID: id, Title: title, Blocks: blocks})
	}
	add("verdict", "Verdict", doc.Block{Verdict: verdict(r)}, doc.Block{List: r.Notes})
	column := func(name string) doc.Column { return doc.Column{Name: name, Numeric: true} }
	owners := &doc.Table{Title: "Rules by owner", Columns: []doc.Column{{Name: "Owner"}, {Name: "Ruleset", Row: true}, column("Chains"), column("Rules"), column("Maps and sets"), column("Elements")}}
	for _, o := range r.Owners {
		owners.Add(doc.Text(o.Owner), doc.Text(o.Set), doc.Int(o.Chains), doc.Int(o.Rules), doc.Int(o.Maps), doc.Int(o.Elements))
	}
	add("owners", "Owners", doc.Block{Table: owners})
	proxies := &doc.Table{Title: "Service proxies, by their chains", Columns: []doc.Column{{Name: "Ruleset"}, {Name: "Proxy"}, {Name: "Version"}}}
	for _, p := range r.Proxies {
		proxies.Add(doc.Text(p.Set), doc.Text(p.Mode), doc.Text(p.Layout))
	}
	add("proxies", "Proxies", doc.Block{Table: proxies})
	services := &doc.Table{Title: fmt.Sprintf("The largest of %s", doc.Plural(len(r.Services), "Service")), Columns: []doc.Column{{Name: "Service"}, {Name: "Ruleset", Row: true}, column("Rules"), column("Endpoints")}}
	for _, s := range r.Services[:min(len(r.Services), mostServices)] {
		services.Add(doc.Text(s.Name), doc.Text(s.Set), doc.Int(s.Rules), doc.Int(s.Endpoints))
	}
	add("services", "Services", doc.Block{Table: services})
	for i, f := range r.Findings {
		list := f.Examples
		if more := f.Count - len(list); more > 0 {
			list = append(list[:len(list):len(list)], fmt.Sprintf("and %s more", doc.Grouped(int64(more))))
		}
		add(fmt.Sprint("finding-", i), "", doc.Block{Heading: fmt.Sprintf("%s: %s (%s)", f.Set, f.What, doc.Grouped(int64(f.Count))), List: list})
	}
	if r.Sync != nil {
		add("sync", "", doc.Block{Heading: fmt.Sprintf("Node %s against the objects of the API", r.Sync.Node), List: r.Sync.Method})
		for i, d := range r.Sync.Differ[:min(len(r.Sync.Differ), mostDiffering)] {
			add(fmt.Sprint("differs-", i), "", doc.Block{Heading: fmt.Sprintf("Service %s, %s", d.Service, d.Family), List: d.Lines, Code: d.Diff})
		}
	}
	if len(measure) > 0 {
		add("measure", "", doc.Block{Heading: "What a sync of this size costs on this machine", Code: strings.Join(measure, "\n")})
	}
	return &doc.Document{Kind: "synclab inspect", Title: "Rules of a node", Sections: all}
}

// verdict says whether something is broken, and what is not.
func verdict(r *inspect.Report) (lines []doc.Line) {
	for _, f := range r.Findings {
		if f.Broken {
			lines = append(lines, doc.Line{Level: doc.Bad, Text: fmt.Sprintf("%s: %s (%s)", f.Set, f.What, doc.Grouped(int64(f.Count)))})
		}
	}
	if r.Sync != nil && len(r.Sync.Differ) > 0 {
		lines = append(lines, doc.Line{Level: doc.Bad, Text: fmt.Sprintf("out of sync with the API: %s, of %s", doc.Plural(len(r.Sync.Differ), "difference"), doc.Plural(r.Sync.Services, "Service"))})
	}
	switch {
	case r.Sync == nil || len(r.Sync.Differ) > 0:
	case r.Sync.Services == 0:
		lines = append(lines, doc.Line{Level: doc.Care, Text: "nothing was compared with the API: see below"})
	default:
		lines = append(lines, doc.Line{Level: doc.Good, Text: "in sync with the API: " + doc.Plural(r.Sync.Services, "Service")})
	}
	if !r.Broken() {
		lines = append(lines, doc.Line{Level: doc.Good, Text: "nothing is broken, as far as the rules tell"})
	}
	return lines
}
