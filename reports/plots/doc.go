// Package plots draws the plots of a run's report. plots.go lists them in the order of the page.
package plots
