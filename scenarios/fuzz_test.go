package scenarios

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzLoad: for any file and override, the loader returns a scenario that survives its own YAML, or Problems that each
// have a text.
func FuzzLoad(f *testing.F) {
	for _, name := range libraryNames() {
		text, err := read(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, "shape.services=10", 0, 0)
	}
	f.Add([]byte(smallest), "steps.1.churn.rate=50", 10, 3)
	f.Add([]byte(sweeping), "sweep.0.values=[a, b]", -1, 5000)
	f.Add([]byte("name: *a\n<<: {a: &a b}\n? [x]\n: y\n"), "steps.0={}", 1, 1)
	f.Add([]byte("steps: [create: {}]\nshape: !!binary aGk="), "shape=", 0, -7)
	f.Fuzz(func(t *testing.T, text []byte, set string, services, endpoints int) {
		s, err := Parse("x.yaml", text, []string{set}, Sizes{Services: services, Endpoints: endpoints})
		if err != nil {
			var problems Problems
			if !errors.As(err, &problems) || len(problems) == 0 {
				t.Fatalf("%T %v, want Problems", err, err)
			}
			for _, p := range problems {
				if p.Text == "" || p.Where == "" {
					t.Errorf("a problem that says nothing: %+v", p)
				}
			}
			return
		}
		out, err := s.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("x.yaml", out, nil, Sizes{})
		if err != nil {
			t.Fatalf("its own YAML: %v\n%s", err, out)
		}
		if diff := cmp.Diff(s, again); diff != "" {
			t.Errorf("(-first +again):\n%s", diff)
		}
	})
}
