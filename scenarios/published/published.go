// Package published has numbers that others published about Service proxies, each as a scenario that measures the same
// thing here, with what it would have to find. A claim is one file NAME.yaml.
package published

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"synclab/scenarios"
)

//go:embed *.yaml
var files embed.FS

// Claim is what others published, and how it is measured here.
type Claim struct {
	Name string `yaml:"-"` // of the file
	// Title is what the numbers are about, in a few words. Source is their address; Date and Hardware are those of the
	// measurement, and Method how it was made.
	Title, Source, Date, Method, Hardware string
	// Published are the figures, in the words of the source.
	Published string
	// Compared says what of it can be compared here, and why. Why says what may explain a difference, if there is one.
	Compared, Why string
	// Scenario is one of the library; Set changes fields of it, and Sweep replaces its sweep.
	Scenario string
	Set      []string
	Sweep    []scenarios.Axis
	Subjects []string
	Kernels  []string      // to measure on; empty: the machine's own
	Reps     int           // of each cell; default 3
	MaxTime  time.Duration `yaml:"maxTime"` // of a subject; 0: the scenario's
	Profile  bool
	Minutes  int // that it takes on two CPUs, about
	Expect   []Expectation
}

// Expectation is one value that the source lets expect, with bounds.
type Expectation struct {
	Say string // what the value is
	// Figure is one of reports/comparison; its value is that of Of, or Of divided by Over. With Growth, it is the exponent of
	// the growth from Over to Of with their Services.
	Figure string
	Detail string // part of the figure's detail, such as its fault, if there are several
	// Step is a kind of step, such as restart. Only its records and those of the settle after it count. Empty: all.
	Step     string
	Of, Over *Place
	Growth   bool
	// Function instead of Figure: its share of the time of one Kind of sync, in the profile of Of; of the kernel's time, or
	// with All of the whole.
	Function, Kind string
	All            bool
	// Published is the value of the source; nil: it has no number. From and To are the bounds of "agrees"; 0: none. Without both,
	// the value is only shown.
	Published *float64
	From, To  float64
}

// Place is a subject in a cell. Empty fields match what there is one of.
type Place struct {
	Subject  string
	Services int
	Params   map[string]string // swept values, such as kernel
}

// Load returns all claims, sorted by name.
func Load() ([]*Claim, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var claims []*Claim
	for _, entry := range entries {
		text, err := files.ReadFile(entry.Name())
		if err != nil {
			return nil, err
		}
		c, err := parse(entry.Name(), text)
		if err != nil {
			return nil, err
		}
		claims = append(claims, c)
	}
	return claims, nil
}

func parse(file string, text []byte) (*Claim, error) {
	c := &Claim{Name: strings.TrimSuffix(file, ".yaml"), Reps: 3}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, field := range [][2]string{{"title", c.Title}, {"source", c.Source}, {"date", c.Date}, {"published", c.Published}, {"compared", c.Compared}, {"scenario", c.Scenario}} {
		if field[1] == "" {
			return nil, fmt.Errorf("%s: %s is missing", file, field[0])
		}
	}
	if len(c.Subjects) == 0 || len(c.Expect) == 0 || c.Minutes == 0 {
		return nil, fmt.Errorf("%s: wants subjects, minutes and expect", file)
	}
	for i, e := range c.Expect {
		switch {
		case e.Say == "" || e.Of == nil:
			return nil, fmt.Errorf("%s: expect %d: wants say and of", file, i)
		case e.Published != nil && e.From == 0 && e.To == 0:
			return nil, fmt.Errorf("%s: expect %d: a published value wants from or to", file, i)
		case (e.Figure == "") == (e.Function == ""):
			return nil, fmt.Errorf("%s: expect %d: wants a figure or a function", file, i)
		case e.Function != "" && (!c.Profile || e.Kind == "" || e.Over != nil || e.Step != "" || e.Detail != ""):
			return nil, fmt.Errorf("%s: expect %d: a function's share needs profile and kind, and no over, step or detail", file, i)
		case e.Growth && e.Over == nil:
			return nil, fmt.Errorf("%s: expect %d: growth needs over", file, i)
		}
	}
	return c, nil
}

// MakeScenario returns the scenario that measures the claim.
func (c *Claim) MakeScenario() (*scenarios.Scenario, error) {
	s, err := scenarios.Load(c.Scenario, c.Set, scenarios.Sizes{})
	if err != nil {
		return nil, fmt.Errorf("%s.yaml: %w", c.Name, err)
	}
	s.Sweep, s.Targets = slices.Clone(c.Sweep), nil // targets have sizes of their own
	if c.MaxTime > 0 {
		s.SetTimeouts(c.MaxTime)
	}
	if _, err := s.Cells(); err != nil {
		return nil, fmt.Errorf("%s.yaml: %w", c.Name, err)
	}
	return s, nil
}
