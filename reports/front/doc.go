// Package front makes the first screen of a run's report from its Summary: the verdict, tiles with the main figures, and one
// chart. Document puts the other sections below.
package front
