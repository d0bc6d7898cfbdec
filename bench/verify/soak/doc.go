// Package soak runs one random scenario after the other against Synclab's subjects, on the real kernel and with real
// packets. It searches for violated properties.
//
//  1. A seed determines a scenario (scenarios.Random). Seeds follow one another, subjects take turns.
//  2. A RunFunc runs the scenario with one subject. Execute is the real one: bench.Execute with the feed "api", into a
//     separate folder below the soak's folder.
//  3. Judge searches the run's records for failures: violated invariants, misrouted flows, lost flows, a subject that
//     did not converge, a run that broke off. Lost flows count only while no active fault may lose flows. Judge also
//     counts (Totals).
//  4. After the first failing seed, or after each, Minimize searches for the shortest scenario with the same failure.
//  5. Soak.Run adds up the totals, and writes summary.json into the soak's folder.
//
// Safety: during faults changes may be late, but flows never reach a wrong endpoint. Liveness: after the faults the
// state converges within the settle timeout.
//
// Not modelled: faults from which a subject may never recover. The records of a rare failure are kept, but Minimize
// needs the failure to appear again.
package soak
