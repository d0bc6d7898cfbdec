// Package figure draws plots in the style of the reports: axes, legends outside the panels, labels at the ends of
// lines, and one look for each subject on every page. The plots themselves are in the packages that have the data.
package figure
