package profile

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// Kinds of time. A cold start includes the first syncs, which also count as syncs: label stage marks it.
const (
	ColdStart = "cold start"
	Between   = "between syncs"
)

// Origins of samples, by their innermost function.
const (
	Kernel  = "kernel"
	Tool    = "tool"
	Proxier = "proxier"
)

// The labels of samples.
const (
	LabelSubject = "subject"
	LabelKind    = "kind"  // of the sync: full, partial, or Between
	LabelStage   = "stage" // ColdStart, or absent
	LabelOrigin  = "origin"
	LabelProcess = "process"
)

// Window is the time of a sync.
type Window struct {
	Kind     string // full or partial
	From, To time.Time
}

func (w Window) contains(t time.Time) bool { return !t.Before(w.From) && !t.After(w.To) }

// Cut says to what samples belong.
type Cut struct {
	Subject string
	PIDs    []int        // of the subject's processes, one after the other
	Shims   map[int]bool // processes of the lab in front of the tools: left out
	Windows []Window
	Cold    Window // the cold start
}

// Profile adds up the samples of a repetition.
type Profile struct {
	cut       Cut
	symbols   symbols
	samples   map[string]*profile.Sample // by labels and stack
	functions map[Frame]*profile.Location
	out       *profile.Profile
	// Samples is the number of samples so far.
	Samples int
}

// New returns an empty profile.
func New(cut Cut) *Profile {
	period := int64(time.Second) / Frequency
	p := &Profile{cut: cut, symbols: symbols{}, samples: map[string]*profile.Sample{}, functions: map[Frame]*profile.Location{}}
	p.out = &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}}, DefaultSampleType: "cpu",
		PeriodType: &profile.ValueType{Type: "cpu", Unit: "nanoseconds"}, Period: period,
	}
	return p
}

// Comment adds a line that pprof shows.
func (p *Profile) Comment(text string) { p.out.Comments = append(p.out.Comments, text) }

// Add adds a sample.
func (p *Profile) Add(s Sample) {
	if p.cut.Shims[s.PID] {
		return
	}
	own := slices.Contains(p.cut.PIDs, s.PID)
	stack, origin := p.known(s.Stack, own)
	if len(stack) == 0 {
		return
	}
	p.Samples++
	labels := map[string]string{LabelSubject: p.cut.Subject, LabelKind: Between, LabelOrigin: origin, LabelProcess: s.Command}
	if own {
		labels[LabelProcess] = p.cut.Subject // threads have names of their own
	}
	for _, w := range p.cut.Windows {
		if w.contains(s.At) {
			labels[LabelKind] = w.Kind
			break
		}
	}
	if p.cut.Cold.contains(s.At) {
		labels[LabelStage] = ColdStart
	}
	var key strings.Builder
	for _, label := range []string{LabelKind, LabelStage, LabelOrigin, LabelProcess} {
		key.WriteString(labels[label] + "\x00")
	}
	for _, l := range stack {
		key.WriteString(strconv.FormatUint(l.ID, 36) + " ")
	}
	kept := p.samples[key.String()]
	if kept == nil {
		kept = &profile.Sample{Location: stack, Value: []int64{0, 0}, Label: map[string][]string{}}
		for label, value := range labels {
			kept.Label[label] = []string{value}
		}
		p.samples[key.String()] = kept
		p.out.Sample = append(p.out.Sample, kept)
	}
	kept.Value[0]++
	kept.Value[1] += p.out.Period
}

// known returns the frames that are known for sure, and the origin of the sample. Beyond its innermost function, the
// user stack of a C program is made up of whatever is in the register that others use as frame pointer.
func (p *Profile) known(stack []Frame, own bool) (out []*profile.Location, origin string) {
	origin = Tool
	if own {
		origin = Proxier
	}
	user := 0
	for i, f := range stack {
		if f.Kernel && user == 0 {
			if i == 0 {
				origin = Kernel
			}
			out = append(out, p.location(f))
			continue
		}
		user++
		if f.Object == unknown || f.Kernel || !own && user > 1 {
			continue
		}
		if f.Function == unknown {
			f.Function = p.symbols.name(f.Object, f.offset)
		}
		out = append(out, p.location(f))
	}
	return out, origin
}

func (p *Profile) location(f Frame) *profile.Location {
	f.offset = 0
	if l := p.functions[f]; l != nil {
		return l
	}
	id := uint64(len(p.functions) + 1)
	function := &profile.Function{ID: id, Name: f.Function, SystemName: f.Function, Filename: f.Object}
	l := &profile.Location{ID: id, Line: []profile.Line{{Function: function}}}
	p.functions[f] = l
	p.out.Function, p.out.Location = append(p.out.Function, function), append(p.out.Location, l)
	return l
}

// Bytes returns the profile as pprof reads it.
func (p *Profile) Bytes() ([]byte, error) {
	if err := p.out.CheckValid(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err := p.out.Write(&b)
	return b.Bytes(), err
}
