package reports

import (
	"bytes"
	"math"
	"os"
	"strings"
	"testing"
)

// The output of go test -bench becomes growth exponents; -update rewrites the golden file.
func TestBenchGrowthGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/bench.txt")
	if err != nil {
		t.Fatal(err)
	}
	all, err := ReadBenchGrowth(bytes.NewReader(text), "bench.txt")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := WriteBenchGrowth(&got, all); err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/bench.golden"
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("%s differs (-update rewrites it); got:\n%s", golden, got.String())
	}
}

// A power law is found exactly. One size has no growth, and zeros have no logarithm.
func TestBenchGrowth(t *testing.T) {
	const text = `goos: linux
BenchmarkPlan/change=slice/services=1000/endpoints=10-2   	100	 1000 ns/op	 0 B/op	 0 allocs/op
BenchmarkPlan/change=slice/services=10000/endpoints=10-2  	100	 100000 ns/op	 0 B/op	 0 allocs/op
BenchmarkOther/services=1000-2                            	100	 1000 ns/op
BenchmarkNone-2                                           	100	 1000 ns/op
PASS
`
	all, err := ReadBenchGrowth(strings.NewReader(text), "x")
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	g := all[0]
	if g.Benchmark != "Plan/change=slice/services=N/endpoints=10" || g.Unit != "sec/op" || math.Abs(g.Slope-2) > 1e-9 || g.SlopeLow != nil || g.Medians[1] != 1e-4 {
		t.Errorf("%+v", g)
	}
	if all[1].Power != nil {
		t.Errorf("an exponent without values: %+v", all[1])
	}
	for _, bad := range []string{"", "BenchmarkNone-2 1 1 ns/op\n", "BenchmarkX/services=10 1 1 ns/op\n"} {
		if _, err := ReadBenchGrowth(strings.NewReader(bad), "x"); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
