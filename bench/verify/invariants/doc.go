// Package invariants checks properties that every Service proxy must keep in spite of faults. There are fourteen
// invariants, I1 to I14, each with a separate checker. The way of the data:
//
//  1. Before the subject starts, Plant writes sentinels: foreign rules with counters in each table, a foreign table of
//     nf_tables, and flows that belong to no Service.
//  2. When the subject has converged, Synclab gathers Evidence. It has the cluster's objects, the node and the
//     settings, and the outcomes of real flows. From the kernel it has the tables (Save, ReadNft, walk.ReadNftables)
//     and the UDP entries of the conntrack table (Flows), and from the subject /healthz and /metrics.
//  3. A fresh proxier renders the same objects into models of the tables (expected). The plan gives the desired state
//     of each Service port. To check what rules do, the ruleset evaluator sends packets through the kernel's rules.
//  4. Check runs the checkers. It returns for each the number of checks and the Findings. If the subject and the
//     objects require evidence (due.go) and there was none, that is a violation.
//
// Steps 3 and 4 are pure: tests give the checkers broken evidence, and each checker must find it.
//
// docs/design/invariants.md lists the invariants, how each is checked for which subject, and what is not modelled.
package invariants
