// Package soak plays one random scenario after the other against the lab's subjects, on the real kernel and with real
// packets, and looks for what must never happen.
//
//  1. A seed makes a scenario (scenarios.Random). Seeds follow one another, subjects take turns.
//  2. A RunFunc plays it with one subject. Execute is the real one: bench.Execute with the feed "api", into a folder of its
//     own below the soak's.
//  3. Judge goes through the run's records: violated invariants, flows that went astray, flows that were lost although no
//     fault held that may lose any, a subject that never got in sync, a run that broke off. It also counts (Totals).
//  4. After the first seed that fails, or each, Minimize looks for the shortest scenario that fails in the same way.
//  5. Soak.Run adds up, and writes summary.json into the soak's folder.
//
// Safety and liveness are apart: while faults hold, a change may come late but a flow may not reach a wrong endpoint; when
// they are healed, everything has to come right within the time of a settle step.
//
// Not modelled: faults that a subject may take for ever to answer; a failure that shows once in many runs is kept with its
// records, but made smaller only as far as it comes again.
package soak
