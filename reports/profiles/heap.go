package profiles

import (
	"cmp"
	"path/filepath"
	"slices"

	pprof "github.com/google/pprof/profile"

	"synclab/bench/raw"
	"synclab/reports/doc"
	"synclab/reports/records"
)

// Heap is what the heap of a subject's process held when a repetition ended, after a garbage collection.
type Heap struct {
	Subject   string       `json:"subject"`
	Cell      records.Cell `json:"cell"`
	Bytes     float64      `json:"bytes"`
	Functions []HeapLine   `json:"functions"` // that allocated it, the largest first
}

// HeapLine is what one function allocated and is still in use.
type HeapLine struct {
	Name  string  `json:"name"`
	Bytes float64 `json:"bytes"`
}

// heapFunctions is the number of functions in a table.
const heapFunctions = 8

// readHeaps reads one heap of each subject, at its largest size.
func readHeaps(runs []*records.Run) (heaps []Heap, problems []string) {
	type found struct {
		run *records.Run
		r   *raw.Record
	}
	var last []found
	for _, run := range runs {
		for i := range run.Records {
			r := &run.Records[i]
			if r.Metric != raw.HeapProfile || r.File == "" {
				continue
			}
			at := slices.IndexFunc(last, func(f found) bool { return f.r.Subject == r.Subject })
			switch {
			case at < 0:
				last = append(last, found{run, r})
			case last[at].r.Services <= r.Services:
				last[at] = found{run, r}
			}
		}
	}
	for _, f := range last {
		h := Heap{Subject: f.r.Subject, Cell: records.Cell{Scenario: f.r.Scenario, Services: f.r.Services, Endpoints: f.r.Endpoints}, Bytes: f.r.Value}
		read, err := readFile(filepath.Join(f.run.Dir, raw.ProfilesFolder, filepath.Base(f.r.File)))
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		h.Functions = heapLines(read)
		heaps = append(heaps, h)
	}
	return heaps, problems
}

// heapLines adds up what each function allocated itself.
func heapLines(p *pprof.Profile) (lines []HeapLine) {
	at := slices.IndexFunc(p.SampleType, func(t *pprof.ValueType) bool { return t.Type == raw.HeapInUse })
	if at < 0 {
		return nil
	}
	sums := map[string]float64{}
	for _, s := range p.Sample {
		name := "(unknown)"
		if len(s.Location) > 0 && len(s.Location[0].Line) > 0 && s.Location[0].Line[0].Function != nil {
			name = s.Location[0].Line[0].Function.Name
		}
		sums[name] += float64(s.Value[at])
	}
	for name, bytes := range sums {
		lines = append(lines, HeapLine{name, bytes})
	}
	slices.SortFunc(lines, func(a, b HeapLine) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name)) })
	return lines[:min(len(lines), heapFunctions)]
}

// table has the functions that allocated most of what is in use.
func (h Heap) table() *doc.Table {
	t := &doc.Table{Title: "Heap of " + h.Subject + ", " + records.SizesText([]records.Cell{h.Cell}),
		Columns: []doc.Column{{Name: "Allocated by"}, {Name: "In use", Numeric: true, Title: "when the repetition ended, after a garbage collection"}, {Name: "Share", Numeric: true}}}
	t.Add(doc.Text("(all)"), doc.Value(h.Bytes, "B"), doc.None())
	for _, l := range h.Functions {
		t.Add(doc.Text(l.Name), doc.Value(l.Bytes, "B"), percentCell(share(l.Bytes, h.Bytes)))
	}
	return t
}
