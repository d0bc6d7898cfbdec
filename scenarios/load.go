package scenarios

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:embed library/*.yaml
var library embed.FS

// Default is the scenario of the library that runs when none is named.
const Default = "steady-churn"

// Sizes override a scenario's numbers where they are not zero.
type Sizes struct {
	Services  int     // shape.services
	Endpoints int     // shape.endpoints.count; the mean of other distributions
	Seed      *uint64 // seed
}

// Load reads the scenario that ref names: a name in the library, or the path of a .yaml file. It applies the overrides
// ("a.b=c") in their order, then the sizes, sets defaults, and validates. An error lists all Problems.
func Load(ref string, sets []string, n Sizes) (*Scenario, error) {
	text, err := read(ref)
	if err != nil {
		return nil, err
	}
	return Parse(ref, text, sets, n)
}

// Parse is Load for the text of a file, which messages name.
func Parse(name string, text []byte, sets []string, n Sizes) (*Scenario, error) {
	t, err := parse(name, text)
	if err != nil {
		return nil, err
	}
	var problems Problems
	for _, assignment := range sets {
		if p := t.override(assignment); p != nil {
			problems = append(problems, *p)
		}
	}
	s, d := t.scenario()
	problems = append(problems, d.problems...)
	problems = append(problems, n.apply(s, d)...)
	s.Fill()
	problems = append(problems, d.explicitZeros()...)

	found := s.checkValues()
	if len(problems) == 0 && len(found) == 0 {
		// Checks across fields are of use only when each field is valid.
		found = s.checkWhole()
	}
	for _, p := range found {
		if p.Where == "" && !covers(d.broken, p.Path) {
			p.Where = d.placeOf(p.Path)
			problems = append(problems, p)
		}
	}
	if len(problems) > 0 {
		t.sort(problems)
		return nil, problems
	}
	return s, nil
}

// sort puts problems of overrides first, then problems of the file by line.
func (t *tree) sort(problems Problems) {
	line := func(p Problem) int {
		n, _ := strconv.Atoi(strings.TrimPrefix(p.Where, t.name+":"))
		return n
	}
	slices.SortStableFunc(problems, func(a, b Problem) int { return cmp.Compare(line(a), line(b)) })
}

// scenario decodes the tree, without defaults.
func (t *tree) scenario() (*Scenario, *decoder) {
	s := &Scenario{}
	d := &decoder{tree: t, where: map[string]string{}}
	d.decode(t.root, "", reflect.ValueOf(s).Elem())
	return s, d
}

// explicitZeros reports values that were written as zero and that a default has replaced: a written 0 does not mean
// 10.
func (d *decoder) explicitZeros() Problems {
	var problems Problems
	for _, g := range d.given {
		ofProxy := strings.HasPrefix(g.path, "proxy.") && g.value.Kind() != reflect.Bool
		if !g.zero || (g.value.IsZero() && !ofProxy) || covers(d.broken, g.path) {
			continue
		}
		text := "zero or empty is not allowed: leave it out for the default, or want " + expected(g.path, g.value.Type())
		problems = append(problems, Problem{Where: d.where[g.path], Path: g.path, Text: text})
		d.broken = append(d.broken, g.path)
	}
	return problems
}

// apply puts the sizes into the scenario. A sweep axis with its own values for the same field would silently override
// the size, so that is a problem.
func (n Sizes) apply(s *Scenario, d *decoder) Problems {
	var problems Problems
	mend := func(path, origin string) {
		d.where[path] = origin
		for i, a := range s.Sweep {
			if a.Field == path && (len(a.Values) > 0 || a.To != 0) {
				problems = append(problems, Problem{
					Where: origin, Path: path,
					Text: fmt.Sprintf("has no effect: sweep.%d sets this field", i),
				})
			}
		}
	}
	if n.Services != 0 {
		s.Shape.Services = n.Services
		mend("shape.services", fmt.Sprintf("size of %d services", n.Services))
	}
	if n.Endpoints != 0 {
		s.Shape.Endpoints.setMean(n.Endpoints)
		mend("shape.endpoints.count", fmt.Sprintf("size of %d endpoints", n.Endpoints))
	}
	if n.Seed != nil {
		s.Seed = *n.Seed
		mend("seed", fmt.Sprintf("seed of %d", *n.Seed))
	}
	return problems
}

// read returns the text of a library scenario or of a file.
func read(ref string) ([]byte, error) {
	if !IsFile(ref) {
		text, err := library.ReadFile("library/" + ref + ".yaml")
		if err == nil {
			return text, nil
		}
		names := libraryNames()
		hint := ""
		if n := nearest(ref, names); n != "" {
			hint = fmt.Sprintf("; did you mean %s", n)
		}
		return nil, fmt.Errorf("scenario %s: not in the library, and not the path of a .yaml file%s. The library holds: %s",
			quote(ref), hint, strings.Join(names, ", "))
	}
	text, err := os.ReadFile(ref)
	if err != nil {
		return nil, fmt.Errorf("scenario: %w", err)
	}
	return text, nil
}

// IsFile distinguishes paths from names: names have neither slashes nor dots.
func IsFile(ref string) bool { return strings.ContainsAny(ref, `/\.`) }

// libraryNames lists the library, sorted by name.
func libraryNames() []string {
	files, err := fs.Glob(library, "library/*.yaml")
	if err != nil {
		panic(err) // only a malformed pattern fails, and this one is constant
	}
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = strings.TrimSuffix(path.Base(f), ".yaml")
	}
	return names
}

// List returns the embedded library, sorted by name.
func List() []*Scenario {
	names := libraryNames()
	list := make([]*Scenario, len(names))
	for i, name := range names {
		s, err := Load(name, nil, Sizes{})
		if err != nil {
			panic(fmt.Sprintf("library: %v", err)) // a defect of the build, caught by the tests
		}
		list[i] = s
	}
	return list
}

// YAML returns the scenario with all defaults written out. Load reads it back as the same scenario.
func (s *Scenario) YAML() ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(s); err != nil {
		return nil, fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	return b.Bytes(), e.Close()
}
