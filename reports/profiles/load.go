package profiles

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"
	"google.golang.org/protobuf/encoding/protowire"

	"synclab/bench/lab/process"
	"synclab/bench/lab/profile"
	"synclab/bench/outfile"
	"synclab/bench/raw"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// Kinds are the kinds of time that a report shows, in order.
var Kinds = []string{profile.ColdStart, process.Full, process.Partial}

// Origins of functions, in order.
var Origins = []string{profile.Kernel, profile.Tool, profile.Proxier}

// Profile is where the time of one kind of sync of a subject goes, in one cell. Times are seconds of CPU per sync.
type Profile struct {
	Subject string
	Cell    records.Cell
	Kind    string
	Syncs   int             // of all repetitions
	Total   estimate.Sample // of a sync
	// Functions are sorted by their time, the largest first.
	Functions []Function
	Stacks    *Node    // mean of all syncs
	Notes     []string // what the profile lacks

	byKey   map[key]*Function
	samples int
}

// Function is a function's time per sync, by repetition.
type Function struct {
	Name   string
	Object string // the program, the library or the kernel
	Origin string
	Self   estimate.Sample
	With   estimate.Sample // with the functions that it calls
}

// Own is the function's median time per sync.
func (f Function) Own() float64 { return f.Self.Median() }

type key struct{ name, object, origin string }

// Node is a function on stacks that begin alike.
type Node struct {
	Name, Origin string
	Seconds      float64 // per sync
	Children     []*Node
}

// Load reads the profiles of a run. Problems are files that cannot be read.
func Load(runs []*records.Run) (all []*Profile, lost, samples float64, problems []string) {
	for i, run := range runs {
		parts := run.Shards
		if parts == nil {
			parts = []*records.Run{run}
		}
		for _, part := range parts {
			for k := range part.Records {
				r := &part.Records[k]
				switch {
				case r.Metric == raw.ProfileLost:
					lost += r.Value
				case r.Metric == raw.ProfileSamples && r.File != "":
					samples += r.Value
					var err error
					if all, err = add(all, part, records.Record{Record: r, Run: i}); err != nil {
						problems = append(problems, err.Error())
					}
				}
			}
		}
	}
	for _, p := range all {
		p.finish()
	}
	slices.SortStableFunc(all, func(a, b *Profile) int {
		return cmp.Or(strings.Compare(a.Subject, b.Subject), a.Cell.ID().Compare(b.Cell.ID()), slices.Index(Kinds, a.Kind)-slices.Index(Kinds, b.Kind))
	})
	return all, lost, samples, problems
}

// bounded returns an error if a profile would take much more memory than its bytes: each of its samples, functions and the
// like takes more than a hundred bytes, even if it is empty.
func bounded(content []byte) error {
	for n := 0; len(content) > 0; n++ {
		_, _, size := protowire.ConsumeField(content)
		if size < 0 {
			return fmt.Errorf("not a profile: %w", protowire.ParseError(size))
		}
		if n == mostFields {
			return fmt.Errorf("more than %d samples, functions and locations", mostFields)
		}
		content = content[size:]
	}
	return nil
}

// Bounds of a profile: bytes unpacked, its parts, functions on one stack (perf records at most 127), and functions on all
// stacks.
const (
	largest    = 64 << 20
	mostFields = 1_000_000
	deepest    = 1024
	mostFrames = 4_000_000
)

// readFile reads a profile, which another user may have written.
func readFile(path string) (*pprof.Profile, error) {
	content, err := outfile.Unpack(path, largest)
	if err != nil {
		return nil, err
	}
	if err := bounded(content); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	read, err := pprof.ParseUncompressed(content)
	if err == nil {
		err = read.CheckValid()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return read, nil
}

// add adds the profile of a repetition.
func add(all []*Profile, run *records.Run, r records.Record) ([]*Profile, error) {
	path := filepath.Join(run.Dir, raw.ProfilesFolder, filepath.Base(r.File))
	read, err := readFile(path)
	if err != nil {
		return all, err
	}
	if len(read.SampleType) != 2 {
		return all, fmt.Errorf("%s: %d values in each sample, want 2: it is not a profile of synclab", path, len(read.SampleType))
	}
	frames := 0
	for i, sample := range read.Sample {
		frames += len(sample.Location)
		if len(sample.Location) > deepest || frames > mostFrames || slices.Min(sample.Value) < 0 {
			return all, fmt.Errorf("%s: sample %d has %d functions on its stack, values %d, and the profile %d functions so far: it is not a profile of synclab",
				path, i, len(sample.Location), sample.Value, frames)
		}
	}
	cell := records.Cell{Scenario: r.Scenario, Services: r.Services, Endpoints: r.Endpoints, Params: r.Params}
	for _, kind := range Kinds {
		syncs := syncsOf(run, r, kind)
		if syncs <= 0 {
			continue
		}
		i := slices.IndexFunc(all, func(p *Profile) bool {
			return p.Subject == r.Subject && p.Cell.ID() == cell.ID() && p.Kind == kind
		})
		if i < 0 {
			i = len(all)
			all = append(all, &Profile{Subject: r.Subject, Cell: cell, Kind: kind, Total: estimate.Sample{}, Stacks: &Node{}, byKey: map[key]*Function{}})
		}
		all[i].Notes = append(all[i].Notes, read.Comments...)
		all[i].addSamples(read, records.Repetition{Run: r.Run, Rep: r.Rep}, syncs)
	}
	return all, nil
}

// syncsOf returns how many syncs of a kind the repetition of a record had.
func syncsOf(run *records.Run, of records.Record, kind string) int {
	for k := range run.Records {
		r := &run.Records[k]
		if r.Metric == raw.ProfiledSyncs && r.Kind == kind && r.Rep == of.Rep && r.Subject == of.Subject && r.Services == of.Services &&
			r.Endpoints == of.Endpoints && r.Scenario == of.Scenario && maps.Equal(r.Params, of.Params) {
			return int(r.Value)
		}
	}
	return 0
}

// label returns a sample's value of a label, which has one.
func label(s *pprof.Sample, name string) string { return strings.Join(s.Label[name], " ") }

// addSamples adds the samples of the profile's kind.
func (p *Profile) addSamples(read *pprof.Profile, of records.Repetition, syncs int) {
	p.Syncs += syncs
	put := func(s estimate.Sample, seconds float64) {
		if len(s[of]) == 0 {
			s[of] = []float64{0}
		}
		s[of][0] += seconds
	}
	put(p.Total, 0)
	for _, s := range read.Sample {
		at := label(s, profile.LabelKind)
		if p.Kind == profile.ColdStart {
			at = label(s, profile.LabelStage)
		}
		if at != p.Kind || len(s.Location) == 0 {
			continue
		}
		p.samples += int(s.Value[0])
		seconds := float64(s.Value[1]) / 1e9
		put(p.Total, seconds/float64(syncs))
		user := profile.Tool
		if label(s, profile.LabelProcess) == label(s, profile.LabelSubject) {
			user = profile.Proxier
		}
		node := p.Stacks.child(label(s, profile.LabelProcess), user)
		node.Seconds += seconds
		seen := map[*Function]bool{} // a recursive function counts once
		for i, l := range slices.Backward(s.Location) {
			if len(l.Line) == 0 || l.Line[0].Function == nil {
				continue
			}
			f := p.function(l.Line[0].Function, user)
			if !seen[f] {
				put(f.With, seconds/float64(syncs))
			}
			if i == 0 {
				put(f.Self, seconds/float64(syncs))
			}
			seen[f] = true
			node = node.child(f.Name, f.Origin)
			node.Seconds += seconds
		}
	}
}

func (p *Profile) function(f *pprof.Function, user string) *Function {
	k := key{f.Name, filepath.Base(f.Filename), user}
	if strings.HasPrefix(f.Filename, "[") || strings.Contains(f.Filename, "vmlinux") {
		k.object, k.origin = strings.Replace(strings.Trim(k.object, "[]"), "kernel.kallsyms", "kernel", 1), profile.Kernel
	}
	if p.byKey[k] == nil {
		p.byKey[k] = &Function{Name: k.name, Object: k.object, Origin: k.origin, Self: estimate.Sample{}, With: estimate.Sample{}}
	}
	return p.byKey[k]
}

func (n *Node) child(name, origin string) *Node {
	for _, c := range n.Children {
		if c.Name == name && c.Origin == origin {
			return c
		}
	}
	c := &Node{Name: name, Origin: origin}
	n.Children = append(n.Children, c)
	return c
}

// finish sorts. A function without samples in a repetition took no time there.
func (p *Profile) finish() {
	for _, f := range p.byKey {
		for _, of := range p.Total.Repetitions() {
			for _, s := range []estimate.Sample{f.Self, f.With} {
				if len(s[of]) == 0 {
					s[of] = []float64{0}
				}
			}
		}
		p.Functions = append(p.Functions, *f)
	}
	slices.SortFunc(p.Functions, func(a, b Function) int {
		return cmp.Or(cmp.Compare(b.Own(), a.Own()), cmp.Compare(b.With.Median(), a.With.Median()), strings.Compare(a.Name, b.Name), strings.Compare(a.Object, b.Object), strings.Compare(a.Origin, b.Origin))
	})
	p.Stacks.finish(float64(p.Syncs))
}

func (n *Node) finish(syncs float64) {
	n.Seconds /= syncs
	for _, c := range n.Children {
		c.finish(syncs)
	}
	slices.SortFunc(n.Children, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), strings.Compare(a.Name, b.Name))
	})
}

// Share is the share of an origin in the time of a sync.
func (p *Profile) Share(origin string) float64 {
	var part, all float64
	for _, f := range p.Functions {
		all += f.Own()
		if f.Origin == origin {
			part += f.Own()
		}
	}
	return share(part, all)
}

// Resolution is the time of one sample per sync: shorter times are chance.
func (p *Profile) Resolution() float64 {
	return 1.0 / profile.Frequency / max(1, float64(p.Syncs)/float64(max(1, len(p.Total.Repetitions()))))
}
