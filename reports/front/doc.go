// Package front makes the first screen of a run's report from its Summary: the verdict, tiles with the main figures, one
// chart, and the ratios of all subjects as a heatmap. Document puts the other sections below.
package front
