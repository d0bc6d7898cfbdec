package step

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"synclab/bench/pass"
	"synclab/scenarios"
	"synclab/sim/world"
)

// Each kind of step has a row.
func TestKindsAreComplete(t *testing.T) {
	fields := reflect.VisibleFields(reflect.TypeFor[scenarios.Step]())
	for _, field := range fields {
		var s scenarios.Step
		reflect.ValueOf(&s).Elem().FieldByIndex(field.Index).Set(reflect.New(field.Type.Elem()))
		if Kinds[s.Kind()].Run == nil {
			t.Errorf("no row executes a step %s", s.Kind())
		}
	}
	if len(Kinds) != len(fields) {
		t.Errorf("%d rows for %d kinds", len(Kinds), len(fields))
	}
}

// A step that finds fewer objects than were planned is noted, and does not end the repetition. Other errors do.
func TestShortSteps(t *testing.T) {
	shape := scenarios.Shape{Services: 1, Nodes: 1, WithoutEndpoint: 1}
	shape.Fill()
	w, err := world.NewWorld(shape, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Create(scenarios.Create{}); err != nil {
		t.Fatal(err)
	}
	_, lost := w.NodeLoss(scenarios.NodeLoss{Nodes: 2})
	trace, churned := w.Churn(scenarios.Churn{Rate: 1, Events: 3})
	for _, err := range []error{lost, churned} {
		var said strings.Builder
		r := &Parts{Env: &pass.Env{Assignment: pass.Assignment{Objects: w.Objects()}, Messages: pass.NewMessageWriter(&said)}}
		if err == nil || r.short("4:step", err) != nil || !strings.Contains(said.String(), "step 4:step: ") {
			t.Errorf("%v: messages %q", err, said.String())
		}
	}
	if len(trace) != 0 {
		t.Errorf("%d changes without endpoints", len(trace))
	}
	r := &Parts{Env: &pass.Env{Assignment: pass.Assignment{Objects: w.Objects()}, Messages: pass.NewMessageWriter(&strings.Builder{})}}
	if err := r.short("4:step", errors.New("address range")); err == nil || r.short("4:step", nil) != nil {
		t.Error("other errors must end the repetition, and no error must not")
	}
	if r.Objects = nil; r.short("4:step", lost) == nil {
		t.Error("a generated cluster must have what its scenario needs")
	}
}
