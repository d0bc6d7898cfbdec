package profiles

import (
	"fmt"
	"maps"
	"strings"

	"synclab/bench/lab/profile"
	"synclab/bench/raw"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// Top is where the time of one kind of sync goes: the functions with most time.
type Top struct {
	Subject   string       `json:"subject"`
	Cell      records.Cell `json:"cell"`
	Kind      string       `json:"kind"`
	Syncs     int          `json:"syncs"`
	Seconds   float64      `json:"seconds"` // of CPU per sync
	Functions []Line       `json:"functions"`
}

// Line is one function. Times are seconds of CPU per sync.
type Line struct {
	Name   string  `json:"name"`
	Object string  `json:"object"`
	Origin string  `json:"origin"`
	Self   float64 `json:"self"`
	With   float64 `json:"with"` // with the functions that it calls
	Share  float64 `json:"share"`
}

// Cost is what sampling costs: the ratio of the same figure with and without samples, one for each cell and subject.
type Cost struct {
	Lost    float64 `json:"lost"`    // samples
	Samples float64 `json:"samples"` // kept
	// CPU and Cold are the ratios of the CPU time of the subject with its tools, and of cold starts.
	CPU  *estimate.Distribution `json:"cpu,omitempty"`
	Cold *estimate.Distribution `json:"cold_start,omitempty"`
}

// topFunctions is the number of functions of each origin in the tables.
const topFunctions = 10

// Report is what profiles say.
type Report struct {
	Top    []Top    `json:"top"` // at the largest sizes
	Growth []Growth `json:"growth,omitempty"`
	Cost   Cost     `json:"cost"`
	Heaps  []Heap   `json:"heaps,omitempty"`
	// Notes are what the profiles lack, such as the kernel's functions.
	Notes []string `json:"notes,omitempty"`

	largest []*Profile // of Top
}

// Read reads the profiles of runs. It returns nil if there are none. Problems are files that cannot be read.
func Read(c *records.Collection) (r *Report, problems []string) {
	all, lost, samples, problems := Load(c.Runs)
	if len(all) == 0 {
		return nil, problems
	}
	r = &Report{largest: Largest(all), Growth: Grow(all)}
	heaps, unread := readHeaps(c.Runs)
	r.Heaps, problems = heaps, append(problems, unread...)
	for _, p := range all {
		r.Notes = append(r.Notes, p.Notes...)
	}
	r.Notes = records.Distinct(r.Notes)
	for _, p := range r.largest {
		top := Top{Subject: p.Subject, Cell: p.Cell, Kind: p.Kind, Syncs: p.Syncs, Seconds: p.Total.Median()}
		for _, origin := range Origins {
			for _, f := range p.Top(origin, topFunctions) {
				top.Functions = append(top.Functions, Line{f.Name, f.Object, f.Origin, f.Own(), f.With.Median(), share(f.Own(), top.Seconds)})
			}
		}
		r.Top = append(r.Top, top)
	}
	r.Cost = Cost{Lost: lost, Samples: samples, CPU: sampledRatio(c, raw.SubjectCPU), Cold: sampledRatio(c, raw.ColdStart)}
	return r, problems
}

func share(part, all float64) float64 {
	if all == 0 {
		return 0
	}
	return part / all
}

// sampledRatio compares a figure with and without samples, in all cells and subjects.
func sampledRatio(c *records.Collection, metric raw.Metric) *estimate.Distribution {
	var ratios []float64
	for _, cell := range c.Cells {
		if cell.Params[raw.ProfileField] != raw.ProfileOn {
			continue
		}
		without := cell
		without.Params = maps.Clone(cell.Params)
		without.Params[raw.ProfileField] = raw.ProfileOff
		for _, one := range c.Series {
			a, b := perRepetition(one.Of(cell, metric)), perRepetition(one.Of(without, metric))
			for of, with := range a { // those of one number are close in time
				if b[of] > 0 {
					ratios = append(ratios, with/b[of])
				}
			}
		}
	}
	if len(ratios) == 0 {
		return nil
	}
	d := estimate.Describe(estimate.Single(ratios...))
	return &d
}

// perRepetition adds up the values of each repetition.
func perRepetition(of estimate.Sample) map[records.Repetition]float64 {
	sums := map[records.Repetition]float64{}
	for repetition, values := range of {
		for _, v := range values {
			sums[repetition] += v
		}
	}
	return sums
}

// Document has the sections that say where the time goes.
func (r *Report) Document(title string) *doc.Document {
	return &doc.Document{Kind: "synclab explain", Title: title, Sections: []doc.Section{r.Section(), r.GrowthSection()}}
}

// Section has the functions with most time, and the flame graphs.
func (r *Report) Section() doc.Section {
	out := doc.Section{ID: "profile", Title: "Where the time goes", Short: "Functions", Filter: true, NewSheet: true}
	if r == nil {
		return out
	}
	out.Add(doc.Block{Note: "Times are CPU time of the subject, of its tools, and of the kernel on their behalf, per sync. A function's own time is without the functions that it calls. " +
		"Cold starts include the first syncs. Of C tools, which have no frame pointers, only the innermost function is known; a stripped one is named by the address where it starts.", Soft: true})
	out.Add(doc.Block{List: append(r.Cost.words(), r.Notes...)})
	for i, p := range r.largest {
		out.Add(doc.Block{Table: profileTable(p, r.Top[i])})
		name := "flame-" + anchor(fmt.Sprintf("%s %s %d %d", p.Subject, p.Kind, p.Cell.Services, i))
		out.Add(doc.Block{On: doc.Page, Plots: []doc.Plot{{Name: name, Title: "Flame graph: " + profileTitle(p), Markup: p.Flame(),
			Caption: profileTitle(p) + ". Each box is a function, as wide as its share of the time; the boxes above it are the functions that it calls. Orange: kernel, red: tool, green: proxier."}}})
	}
	for _, h := range r.Heaps {
		out.Add(doc.Block{Table: h.table()})
	}
	return out
}

func profileTitle(p *Profile) string {
	return fmt.Sprintf("%s, %s, %s Services", p.Subject, KindText(p.Kind), doc.Grouped(int64(p.Cell.Services)))
}

// KindText names a kind of time.
func KindText(kind string) string {
	if kind == profile.ColdStart {
		return kind
	}
	return kind + " sync"
}

// anchor makes a name for a link.
func anchor(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '/' || r == ' ' || r == '@' {
			return '-'
		}
		return r
	}, text)
}

// words say what sampling cost.
func (c *Cost) words() []string {
	out := []string{fmt.Sprintf("%s samples, %s lost.", doc.Grouped(int64(c.Samples)), doc.Grouped(int64(c.Lost)))}
	for _, one := range []struct {
		text string
		d    *estimate.Distribution
	}{{"CPU time of the subject and its tools", c.CPU}, {"cold start", c.Cold}} {
		if one.d == nil {
			continue
		}
		text := fmt.Sprintf("What samples cost: %s with samples is %.3f times that without (median of %s", one.text, one.d.Median, doc.Plural(one.d.Repetitions, "pair"))
		if one.d.Low != nil {
			text += fmt.Sprintf(", 95 %% interval %.3f to %.3f", *one.d.Low, *one.d.High)
		} else if one.d.RangeLow != nil {
			text += fmt.Sprintf(", range %.3f to %.3f", *one.d.RangeLow, *one.d.RangeHigh)
		}
		out = append(out, text+").")
	}
	return append(out, "Compare no duration of cells with profile=on with that of other runs.")
}

// profileTable has the functions with most time, those of each origin apart.
func profileTable(p *Profile, top Top) *doc.Table {
	t := &doc.Table{Title: profileTitle(p), Columns: []doc.Column{{Name: "Function"}, {Name: "In", Row: true}, {Name: "Own time", Short: "own", Numeric: true, Title: "CPU time per sync, median of the repetitions"},
		{Name: "Share", Numeric: true, Title: "of the CPU time of a sync"}, {Name: "With calls", Numeric: true, Title: "with the functions that it calls; of C tools as far as known", Spare: 1}}}
	t.Note = fmt.Sprintf("A sync takes %s of CPU; %s.", doc.Format(top.Seconds, "s"), doc.Plural(p.Syncs, "sync"))
	for _, origin := range Origins {
		first := true
		for _, f := range top.Functions {
			if f.Origin != origin {
				continue
			}
			if first {
				t.Heading(fmt.Sprintf("%s: %.3g %%", origin, 100*p.Share(origin)))
				first = false
			}
			t.Add(doc.Text(f.Name), doc.Text(f.Object), doc.Value(f.Self, "s"), percentCell(f.Share), doc.Value(f.With, "s"))
		}
	}
	return t
}

func percentCell(share float64) doc.Cell {
	return doc.Cell{Text: fmt.Sprintf("%.3g %%", 100*share), Value: doc.Exact(share)}
}
