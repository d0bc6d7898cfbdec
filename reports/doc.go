// Package reports makes reports of runs from their raw files. It measures nothing.
//
// The way of the data, each package below the ones before it:
//
//  1. records reads run folders, merges shards, and groups the records by series, cell and metric.
//  2. estimate turns a group into a median with its interval. The repetition is the statistical unit. It also fits
//     growth with sizes or positions.
//  3. comparison has the figures of each subject in a cell, and their ratios to the baselines.
//  4. sections derives a Summary, and shows each part of it as a section of package doc: tables, notes, sentences.
//     plots draws, in the style of package figure.
//  5. doc writes the sections: as a page, for a terminal, as Markdown.
//
// Build, here, writes all files from one Summary, so that they cannot disagree: summary.json, summary.md, index.html and
// the plots; and bench.txt, the repetitions for benchstat. A new section is one function in package sections and one line
// in its sections.go.
//
// Apart from that: diff compares two runs, history follows many, plan answers how far a cluster can grow. Package synthetic has made-up runs for tests.
//
// The time or memory that a stopped subject would have
// needed is not estimated.
package reports
