package pass

import (
	"strings"
	"testing"

	"synclab/bench/raw"
)

func TestExceeded(t *testing.T) {
	e := &Env{Assignment: Assignment{Enough: []Bound{{Metric: raw.ColdStart, Most: 30}, {Metric: raw.FirstPacket, Quantile: 0.99, Most: 1e-4}}}}
	position := func(n int) *int { return &n }
	for range 100 {
		e.collect(&raw.Record{Metric: raw.FirstPacket, Value: 2e-4, Position: position(1)})
		e.collect(&raw.Record{Metric: raw.FirstPacket, Value: 2e-4, Position: position(-1)})
	}
	for i := range 100 {
		value := 5e-5
		if i == 0 {
			value = 1 // one packet of a hundred decides no 99th percentile
		}
		e.collect(&raw.Record{Metric: raw.FirstPacket, Value: value, Position: position(50)})
	}
	e.collect(&raw.Record{Metric: raw.Reaction, Value: 1000})
	if over := e.Exceeded(); over != "" {
		t.Errorf("exceeded: %s", over)
	}
	e.collect(&raw.Record{Metric: raw.FirstPacket, Value: 1, Position: position(50)})
	e.collect(&raw.Record{Metric: raw.FirstPacket, Value: 1, Position: position(50)})
	if over := e.Exceeded(); !strings.Contains(over, "first_packet") {
		t.Errorf("exceeded: %q", over)
	}
	e.collect(&raw.Record{Metric: raw.ColdStart, Value: 31})
	if over := e.Exceeded(); !strings.Contains(over, "cold_start 31") {
		t.Errorf("exceeded: %q", over)
	}
}
