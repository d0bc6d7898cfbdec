package netns

import (
	"slices"
	"testing"
)

func TestBenchmarksAlone(t *testing.T) {
	for _, c := range []struct{ args, want []string }{
		{[]string{"-test.timeout=10m0s"}, []string{"-test.timeout=10m0s"}},
		{[]string{"-test.bench=.", "x"}, []string{"-test.run=^$", "-test.bench=.", "x"}},
		{[]string{"-test.bench="}, []string{"-test.bench="}},
		{[]string{"-test.bench=.", "-test.run=One"}, []string{"-test.bench=.", "-test.run=One"}},
	} {
		if got := benchmarksAlone(c.args); !slices.Equal(got, c.want) {
			t.Errorf("%q become %q, want %q", c.args, got, c.want)
		}
	}
}
