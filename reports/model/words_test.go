package model

import (
	"bytes"
	"strings"
	"testing"
)

// A capped error is shown as a lower bound.
func TestErrorText(t *testing.T) {
	within, beyond := worst, worst
	for _, test := range []struct {
		err  float64
		want string
	}{{0.034, "3.4 %"}, {0.6999, "70.0 %"}, {worst, "≥ 70 %"}, {beyondShare*beyond + (1-beyondShare)*within, "≥ 70 %"}} {
		if got := ErrorText(test.err); got != test.want {
			t.Errorf("%v: %q, want %q", test.err, got, test.want)
		}
	}
	var b bytes.Buffer
	m := Model{Subjects: []*Subject{{Name: "synclab/nftables", Terms: []Term{{Quantity: PeakRSS, Form: Form{State: "const"}, Params: []float64{0},
		Coefficients: map[string]float64{"a": 1 << 20}, Score: worst, LargestOut: 0.5}}}}}
	if err := m.WriteTable(&b); err != nil || !strings.Contains(b.String(), "1 MiB       ≥ 70 %") || !strings.Contains(b.String(), "50.0 %") {
		t.Errorf("%v, %s", err, b.String())
	}
}
