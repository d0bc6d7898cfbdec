package api

import (
	"testing"

	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/world"
)

// worldOf is a world with the Services of a shape.
func worldOf(t *testing.T, shape scenarios.Shape, seed uint64) *world.World {
	t.Helper()
	w, err := world.NewWorld(shape, seed)
	if err == nil {
		_, err = w.Create(scenarios.Create{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// objectsOf are the objects of a shape.
func objectsOf(t *testing.T, shape scenarios.Shape, seed uint64) *sim.Objects {
	t.Helper()
	return worldOf(t, shape, seed).Objects()
}
