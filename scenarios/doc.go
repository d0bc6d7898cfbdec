// Package scenarios holds the scenario library and reads scenarios from YAML. A scenario lists what happens to a
// simulated cluster and to the proxy under test. The package touches neither the kernel nor the clock.
//
// The way of a scenario:
//
//  1. A file, or a name in the embedded library, becomes a tree of YAML nodes (load.go). Anchors, aliases and second
//     documents are refused: a scenario reads from top to bottom.
//  2. Overrides ("shape.services=5000") change that tree (set.go). They get the same strict checks as the file.
//  3. The tree becomes a Scenario (decode.go). Unknown fields, wrong types and missing units are problems with file,
//     line, path and allowed values.
//  4. Sizes override N, E and the seed. Fill sets unset fields to their defaults (defaults.go, and kinds.go for steps).
//  5. Validate refuses what cannot work or does not fit. rules.go and kinds.go limit single fields, with reasons. validate.go and
//     fit.go check fields against each other. steps.go checks the order of the steps.
//  6. Cells makes one scenario of each combination of swept values (sweep.go).
//
// All problems are reported together, one a line.
//
// Paths name fields as in "steps.2.churn.rate". Lists count from 0. If only one step has a kind, the kind may stand
// for its index: "steps.churn.rate".
//
// Not modelled: steps that run at the same time (but a fault is active during the steps after it), conditions, loops.
package scenarios
