// Package scenarios says what to try: it holds the scenario library and reads
// scenarios from YAML. It touches neither the kernel nor the clock.
//
// The way of a scenario:
//
//  1. A file, or a name in the embedded library, becomes a tree of YAML nodes
//     (load.go). Anchors, aliases and second documents are refused: a scenario
//     reads from top to bottom.
//  2. Overrides ("shape.services=5000") change that tree (set.go), so that they
//     meet the same strictness as the file.
//  3. The tree becomes a Scenario (decode.go). Unknown fields, wrong types and
//     missing units are problems with file, line, path and what is allowed.
//  4. Sizes override N, E and the seed; Fill sets what was left out
//     (defaults.go).
//  5. Validate refuses what cannot work or would not fit (rules.go holds the
//     limits of single fields with their reasons, validate.go and fit.go what
//     fields say about each other, steps.go the order of the steps).
//  6. Cells makes one scenario of each combination of swept values (sweep.go).
//
// All problems are reported together, one a line.
//
// Paths name fields as in "steps.2.churn.rate"; lists count from 0, and a step
// may be named by its kind where only one has it: "steps.churn.rate".
//
// Not modelled: steps that run at the same time (a fault holds during the steps
// after it), conditions, loops.
package scenarios
