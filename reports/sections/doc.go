// Package sections derives the content of a run's report: the numbers of a Summary, and the sections that show them.
//
// summary.go and derive.go have the figures, phases and fits; traversal.go the cost of first packets, disruption.go
// the outcomes of flows, faults.go the faults and invariants, slos.go the SLOs at measured sizes, targets.go the targets,
// cold.go cold starts, seen.go when packets noticed a change, answers.go how packets ended. Files named *_tables.go,
// key_figures.go, numbers.go and overview.go make sections of them. warnings.go has the caveats, method.go how the numbers
// were measured, notes.go the lines below tables. sections.go lists the sections in the order of every output.
package sections
