// Package agreement compares the simulator (sim/simulator) with a run: it plays the run's changes, at their due times,
// through the simulated sync loop. stream.go reads the changes from the records, replay.go plays them.
package agreement
