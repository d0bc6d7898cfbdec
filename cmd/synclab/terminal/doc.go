// Package terminal is how synclab writes to a terminal and heeds its signals: output formats, columns, progress bars, no
// control characters, and Ctrl-C.
package terminal
