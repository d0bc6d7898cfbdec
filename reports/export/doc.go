// Package export writes the rows of a summary, those of summary.json, in the formats of other programs.
//
//  1. labels turns what distinguishes a row into labels.
//  2. PerfDash writes the JSON that Kubernetes' performance dashboard reads.
//  3. OpenMetrics writes the text that Prometheus, and node_exporter's textfile collector, read.
//
// Not exported: ratios of subjects, fits, verdicts and raw values.
package export
