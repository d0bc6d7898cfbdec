// Package comparison computes the figures of each subject in a cell, and compares them with baselines.
//
// sides.go lists the figures, figures.go reads their values from the records. ratios.go divides them: by those of
// kube-proxy with the same backend, and by those of one baseline for all. Subjects of one run are paired by repetition,
// subjects of two runs are not. A stopped subject's figures and ratios are bounds. floor.go has the kernel floor: the
// least kernel time of any subject on the same kernel interface.
package comparison
