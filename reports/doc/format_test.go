package doc

import (
	"math"
	"reflect"
	"strconv"
	"testing"
)

func TestFormat(t *testing.T) {
	for _, test := range []struct {
		value float64
		unit  string
		want  string
	}{
		{3.3123, "s", "3.31 s"}, {0.7016, "s", "702 ms"}, {12.34e-6, "s", "12.3 µs"}, {3e-9, "s", "3.00 ns"}, {0, "s", "0 s"}, {-0.0123, "s", "-12.3 ms"},
		{0.99999, "s", "1.00 s"}, {9.9951e-4, "s", "1.00 ms"}, {9.9951e-7, "s", "1.00 µs"}, {599, "s", "599 s"}, {1004, "s", "16m44s"}, {math.NaN(), "s", "–"},
		{230020, "count", "230,020"}, {4.5, "count", "4.50"}, {-1234567, "count", "-1,234,567"}, {7, "", "7"},
		{0.251, "ratio", "25.1 %"}, {512, "B", "512 B"}, {1000, "B", "0.98 KiB"}, {1536, "B", "1.50 KiB"}, {300 << 20, "B", "300 MiB"}, {5 << 50, "B", "5,120 TiB"},
		{1.5, "CPUs", "1.50 CPUs"},
	} {
		if got := Format(test.value, test.unit); got != test.want {
			t.Errorf("Format(%v, %q) = %q, want %q", test.value, test.unit, got, test.want)
		}
	}
}

func TestSignificant(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 1: "1.00", 9.994: "9.99", 9.996: "10.0", 12.34: "12.3", 99.94: "99.9", 99.96: "100", 1234.5: "1,235",
		0.0123: "0.01", 0.00123: "0.0012", -12.34: "-12.3"} {
		if got := Significant(v); got != want {
			t.Errorf("Significant(%v) = %q, want %q", v, got, want)
		}
	}
}

func TestGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -999: "-999", -1000: "-1,000", 1234567: "1,234,567", math.MinInt64: "-9,223,372,036,854,775,808"} {
		if got := Grouped(n); got != want {
			t.Errorf("Grouped(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestTrimTick(t *testing.T) {
	for label, want := range map[string]string{"1.00 s": "1 s", "1.50 s": "1.5 s", "100 ms": "100 ms", "10.0": "10", "0 s": "0 s", "1,000": "1,000"} {
		if got := TrimTick(label); got != want {
			t.Errorf("TrimTick(%q) = %q, want %q", label, got, want)
		}
	}
}

func TestExact(t *testing.T) {
	for _, v := range []float64{0, 0.1 + 0.2, 1e-300, -math.MaxFloat64} {
		if got, err := strconv.ParseFloat(Exact(v), 64); err != nil || got != v {
			t.Errorf("Exact(%v) = %q, %v", v, Exact(v), err)
		}
	}
}

// TestValueCells: a cell keeps the full precision. NaN is no value.
func TestValueCells(t *testing.T) {
	v := 0.123456
	for _, test := range []struct {
		name string
		got  Cell
		want Cell
	}{
		{"value", Value(v, "s"), Cell{Text: "123 ms", Value: "0.123456", Title: "0.123456 s"}},
		{"count", Value(2, ""), Cell{Text: "2", Value: "2", Title: "2"}},
		{"NaN", Value(math.NaN(), "s"), None()},
		{"optional", Optional(&v, "s"), Value(v, "s")},
		{"not measured", Optional(nil, "s"), None()},
		{"whole number", Int(12345), Cell{Text: "12,345", Value: "12345"}},
	} {
		if !reflect.DeepEqual(test.got, test.want) {
			t.Errorf("%s: %+v, want %+v", test.name, test.got, test.want)
		}
	}
}
