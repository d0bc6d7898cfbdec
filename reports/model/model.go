package model

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"synclab/bench/raw"
	"synclab/bench/subject"
)

// Model is the cost model of a run: predictions for sizes that were not measured, by subject.
type Model struct {
	Run  string    `json:"run"` // id of the run that the model is fitted to
	Made time.Time `json:"made"`
	// Seed of the bootstrap. The same points and seed give the same model.
	Seed uint64 `json:"seed"`
	// Confidence of the intervals of Predict.
	Confidence float64      `json:"confidence"`
	Feed       string       `json:"feed"`
	Versions   raw.Versions `json:"versions"`
	Machine    raw.Machine  `json:"machine"`
	// Asked are the subjects that the run was to measure. Status is its final status (raw.StatusComplete …). Older
	// models have neither.
	Asked    []string   `json:"asked,omitempty"`
	Status   string     `json:"status,omitempty"`
	Subjects []*Subject `json:"subjects"`
	// Pace is the machine's pace before the calibration. Today compares it with the pace passed to At. nil: unknown.
	Pace  *raw.Pace `json:"pace,omitempty"`
	Today *Today    `json:"today,omitempty"`
	// Validation has the errors of predictions from small cells for large ones. nil: no cell was held out.
	Validation *Validation `json:"validation,omitempty"`
}

// Subject is the cost model of one subject.
type Subject struct {
	Name   string `json:"name"`
	Layout string `json:"layout,omitempty"` // of the lab's own rules in iptables; empty: classic, or none
	Terms  []Term `json:"terms"`
	// Noise is the scatter of single syncs of a kind around their cell's median: sorted logarithms. NoiseOf has the
	// median for each of them, in s; older models have no NoiseOf.
	Noise   map[string][]float64 `json:"noise"`
	NoiseOf map[string][]float64 `json:"noise_of,omitempty"`
	Points  []Point              `json:"points"`
	// ToNode is the watch delay. nil: no change reached the proxier while it was idle.
	ToNode *WatchDelay `json:"to_node,omitempty"`

	confidence float64
	today      *Today
}

// FitOptions of a model. The zero value has defaults.
type FitOptions struct {
	Seed       uint64  // of the bootstrap; default 1
	Confidence float64 // of intervals; default 0.9
	// MostServices excludes larger cells from the fit; 0: no limit.
	MostServices int
	// Quantities to fit; empty: all.
	Quantities []Quantity
}

func (o *FitOptions) fill() {
	if o.Seed == 0 {
		o.Seed = 1
	}
	if o.Confidence == 0 {
		o.Confidence = 0.9
	}
}

// Fit fits the cost model of a run. It omits subjects without enough cells, and fails if none is left.
func Fit(run raw.Run, records []raw.Record, o FitOptions) (*Model, error) {
	o.fill()
	m := &Model{Run: run.ID, Made: run.Started, Seed: o.Seed, Confidence: o.Confidence, Feed: run.Feed, Versions: run.Versions, Machine: run.Machine,
		Asked: run.Subjects, Status: run.Status, Pace: run.Pace}
	points := Points(records)
	var names, lacking []string
	for name := range points {
		names = append(names, name)
	}
	slices.Sort(names)
	fitted := make([]*Subject, len(names))
	var wait sync.WaitGroup
	turns := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, name := range names {
		wait.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			fitted[i] = fitSubject(name, points[name], o)
		})
	}
	wait.Wait()
	ways := ToNode(run, records)
	for i, s := range fitted {
		if s == nil {
			lacking = append(lacking, names[i])
			continue
		}
		s.ToNode = ways[s.Name]
		m.Subjects = append(m.Subjects, s)
	}
	if len(m.Subjects) == 0 {
		return nil, fmt.Errorf("cost model: no subject has full syncs at two sizes or more (subjects: %s): calibrate longer", strings.Join(lacking, ", "))
	}
	return m, nil
}

// fitSubject returns nil if the subject's full syncs were not measured at two sizes.
func fitSubject(name string, points []Point, o FitOptions) *Subject {
	s := &Subject{Name: name, Noise: map[string][]float64{}, NoiseOf: map[string][]float64{}, confidence: o.Confidence}
	if about, err := subject.Parse(name); err == nil {
		s.Layout = string(about.Layout)
	}
	for _, p := range points {
		if o.MostServices == 0 || p.Services <= o.MostServices {
			s.Points = append(s.Points, p)
		}
	}
	full := s.points(Total, Full)
	if len(distinct(full, func(p Point) float64 { return float64(p.Services) })) < 2 {
		return nil
	}
	for _, q := range []Quantity{Rules, Elements, Crossed, PeakRSS, FirstPacket, FirstPacketP99} { // rules first: other formulas may depend on them
		s.fit(q, "", o)
	}
	for _, kind := range kinds {
		for _, q := range append(slices.Clone(phases), Total, CPU, ChildPeakRSS) { // phases first: a whole sync may be their sum
			s.fit(q, kind, o)
		}
		if scattered, of := noise(s.points(Total, kind)); len(scattered) > 0 {
			s.Noise[kind], s.NoiseOf[kind] = scattered, of
		}
	}
	return s
}

func (s *Subject) points(q Quantity, kind string) []Point {
	var out []Point
	for _, p := range s.Points {
		if p.Quantity == q && p.Kind == kind {
			out = append(out, p)
		}
	}
	return out
}

func distinct(points []Point, of func(Point) float64) []float64 {
	var out []float64
	for _, p := range points {
		if v := of(p); !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return out
}

// fit adds the fit of a quantity, if it has points.
func (s *Subject) fit(q Quantity, kind string, o FitOptions) {
	points := s.points(q, kind)
	wanted := len(o.Quantities) == 0 || q == Rules || q == Crossed || slices.Contains(o.Quantities, q) || slices.Contains(o.Quantities, Total) && slices.Contains(phases, q)
	if q.ofPackets() && !s.crossing() {
		points = lastPositions(points)
	}
	// Where a few Services have most endpoints, all costs differ: they depend on how many Services have several
	// endpoints, and how many different numbers of endpoints there are.
	if plain := slices.DeleteFunc(slices.Clone(points), func(p Point) bool { return p.Shape != "" }); len(plain) > 1 {
		points = plain
	}
	if len(points) == 0 || !wanted {
		return
	}
	at := s.sizes(points)
	variables := []string{"n"} // if all Services are equal, the total of endpoints predicts other clusters better
	each := distinct(points, func(p Point) float64 { return p.Endpoints })
	if len(each) > 1 {
		variables = []string{"n", "s"}
		if low, high := extremes(at, "rules"); low > 0 && high/low > 3 {
			variables = append(variables, "rules")
		}
	}
	if q.ofPackets() && s.crossing() {
		variables = []string{"crossed"}
	}
	var changes []string
	if c := distinct(points, func(p Point) float64 { return p.Changed }); len(c) > 1 && c[0] > 0 && c[len(c)-1]/c[0] >= 3 {
		if changes = []string{"c"}; len(each) > 1 {
			changes = append(changes, "c·e")
		}
	}
	tried := forms(variables, changes)
	if q.ofPackets() && !s.crossing() && s.term(Crossed, "") != nil {
		tried = []Form{{State: "const"}} // the number of crossed rules is the same in any cluster
	}
	tried = slices.DeleteFunc(tried, func(f Form) bool {
		return strings.HasPrefix(f.State, "plane") && (len(each) < 2 || variables[0] == "crossed") || !plausible(q, kind, f, s.crossing())
	})
	hash := fnv.New64a()
	fmt.Fprint(hash, s.Name, "/", q, "/", kind)
	fit := func(tried []Form) (Term, *sample, bool) {
		return fitTerm(points, at, tried, rand.New(rand.NewPCG(o.Seed, hash.Sum64())))
	}
	t, fitted, ok := fit(caused(s.Name, q, kind, variables))
	if !ok { // no known cause, or too few points for its formulas
		t, fitted, ok = fit(tried)
	}
	if !ok {
		return
	}
	if q == Total {
		s.byPhases(&t, fitted)
	}
	s.Terms = append(s.Terms, t)
}

// plausible excludes formulas that only noise can support. Memory grows at most linearly. A packet crosses at most all
// rules, in ever slower memory. The p99 of a few hundred packets shows little. Proxiers do no work for each pair of
// Services. A full sync of more Services takes longer.
func plausible(q Quantity, kind string, f Form, crossing bool) bool {
	switch q {
	case FirstPacket:
		if crossing { // a fixed part plus a cost per rule
			return f.State == "line"
		}
		return f.State == "const" || f.State == "line" || f.State == "root" || f.State == "plane" || f.State == "square"
	case FirstPacketP99:
		return f.State == "const" && !crossing || f.State == "line"
	case PeakRSS, ChildPeakRSS, Rules, Elements, Crossed:
		return f.State == "const" || f.State == "line" || f.State == "plane"
	case Plan, Encode, Rest: // the proxier's own work: only tools and the kernel have quadratic parts
		return f.State == "const" || f.State == "line" || f.State == "plane" || f.State == "power"
	case Total, CPU:
		return f.State != "root" && (kind == Partial || f.State != "const")
	}
	return f.State != "root"
}

// crossing reports whether packets are known to cross more rules in larger clusters. Their cost then follows from the
// number of rules.
func (s *Subject) crossing() bool {
	points := s.points(Crossed, "")
	if len(points) < 2 || s.term(Crossed, "") == nil {
		return false
	}
	values := distinct(points, func(p Point) float64 { return p.Value })
	return values[len(values)-1] >= manyCrossed && values[len(values)-1] > 1.5*values[0]
}

// manyCrossed is the number of rules whose cost is visible next to that of a system call.
const manyCrossed = 50

// lastPositions returns one point per cell: that of the position at which a packet crosses most rules.
func lastPositions(points []Point) (out []Point) {
	for _, p := range points { // sorted by the number of crossed rules
		if n := len(out); n > 0 && out[n-1].Services == p.Services && out[n-1].Endpoints == p.Endpoints && out[n-1].Shape == p.Shape {
			out[n-1] = p
			continue
		}
		out = append(out, p)
	}
	return out
}

// Shown returns the points of a quantity of a kind of sync; for first packets, those at the last position.
func (s *Subject) Shown(q Quantity, kind string) []Point {
	if q.ofPackets() {
		return lastPositions(s.points(q, kind))
	}
	return s.points(q, kind)
}

// sized adds the predicted numbers of rules and of crossed rules to a size.
func (s *Subject) sized(v size) size {
	if t := s.term(Rules, ""); t != nil {
		v.rules = t.Form.at(v.per(t.Largest.size()), t.Params)
	}
	if t := s.term(Crossed, ""); t != nil && v.x == 0 {
		v.x = t.Form.at(v.per(t.Largest.size()), t.Params)
	}
	return v
}

func extremes(at []size, variable string) (low, high float64) {
	low = math.Inf(1)
	for _, v := range at {
		low, high = min(low, v.of(variable)), max(high, v.of(variable))
	}
	return low, high
}

func (s *Subject) term(q Quantity, kind string) *Term {
	for i := range s.Terms {
		if s.Terms[i].Quantity == q && s.Terms[i].Kind == kind {
			return &s.Terms[i]
		}
	}
	return nil
}

// Subject returns the subject with a name.
func (m *Model) Subject(name string) (*Subject, error) {
	var there []string
	for _, s := range m.Subjects {
		if s.Name == name {
			return s, nil
		}
		there = append(there, s.Name)
	}
	return nil, fmt.Errorf("cost model of run %s: %w %s; its subjects: %s", m.Run, errNoSubject, name, strings.Join(there, ", "))
}

var errNoSubject = errors.New("no subject")
