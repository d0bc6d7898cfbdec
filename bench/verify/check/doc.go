// Package check checks invariants in step check.
//
//  1. Before the subject starts, Checks plants rules and flows that it must not change.
//  2. restores.go reads the tables after each call of a tool, if the scenario makes restores fail.
//  3. flows.go counts the outcomes of the stream's flows.
//  4. A check gathers evidence from cluster, kernel and subject, and runs the checkers of bench/verify/invariants. It repeats
//     that until nothing is violated, or the time to converge has passed.
package check
