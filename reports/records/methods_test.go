package records

import (
	"testing"

	"synclab/bench/raw"
)

// First packets of UDP and of TCP are never in one sample or one line: a series over cells with both shows UDP.
func TestNodeMethods(t *testing.T) {
	packet := func(services int, method string) raw.Record {
		position := 1
		return raw.Record{Scenario: "s", Subject: "p", Services: services, Rep: 1, Metric: raw.FirstPacket, Unit: "s", Value: float64(services), Position: &position, Method: method}
	}
	for _, test := range []struct {
		about   string
		records []raw.Record
		method  string
		shown   []bool // by size: 10, 20
	}{
		{"UDP", []raw.Record{packet(10, ""), packet(20, "sendto")}, "", []bool{true, true}},
		{"TCP", []raw.Record{packet(10, raw.MethodConnect), packet(20, raw.MethodConnect)}, raw.MethodConnect, []bool{true, true}},
		{"TCP at the small size", []raw.Record{packet(10, raw.MethodConnect), packet(20, "")}, "", []bool{false, true}},
	} {
		c := Collect([]*Run{{Records: test.records}})
		one := c.Series[0]
		if got := one.NodeMethod(); got != test.method {
			t.Errorf("%s: method %q, want %q", test.about, got, test.method)
		}
		for i, cell := range c.Cells {
			if got := len(one.Positions(cell)) > 0 && len(one.At(cell, 1)) > 0; got != test.shown[i] {
				t.Errorf("%s: %d Services shown: %v", test.about, cell.Services, got)
			}
		}
	}
}
