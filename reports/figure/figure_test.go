package figure

import (
	"fmt"
	"slices"
	"testing"

	"gonum.org/v1/plot"
)

// Axis ticks are at round values, and zero has no sign.
func TestAxisTicks(t *testing.T) {
	for _, test := range []struct {
		name     string
		axis     func(*plot.Axis)
		min, max float64
		want     []string
	}{
		{"shares", func(a *plot.Axis) {
			LinearAxis(a, true, func(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) })
		}, 0, 1, []string{"0 %", "20 %", "40 %", "60 %", "80 %", "100 %"}},
		{"around zero", func(a *plot.Axis) { LinearAxis(a, false, TickCount) }, -2.1, 2.1, []string{"-2", "-1", "0", "1", "2"}},
		{"one or none", CountAxis, 0, 1.08, []string{"0", "1"}},
		{"a few", CountAxis, 0, 4.32, []string{"0", "1", "2", "3", "4"}},
		{"thousands", CountAxis, 0, 2100, []string{"0", "500", "1,000", "1,500", "2,000"}},
		{"milliseconds", func(a *plot.Axis) { LinearAxis(a, true, TickSeconds) }, 0, 0.0035, []string{"0 s", "1 ms", "2 ms", "3 ms"}},
		{"a short logarithmic one of counts", LogCountAxis, 2, 3, []string{"2", "3"}},
		{"a short logarithmic one", func(a *plot.Axis) { LogAxis(a, TickSeconds) }, 148e-6, 205e-6, []string{"140 µs", "160 µs", "180 µs", "200 µs", "220 µs"}},
	} {
		var a plot.Axis
		a.Min, a.Max = test.min, test.max
		test.axis(&a)
		var got []string
		for _, tick := range a.Tick.Marker.Ticks(a.Min, a.Max) {
			got = append(got, tick.Label)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
