// Package diff compares two runs, the same subjects before and after a change, and judges each figure by its threshold.
package diff
