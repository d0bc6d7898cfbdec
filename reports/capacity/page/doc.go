// Package page writes the answer of a plan: capacity.html, capacity.md, tables as CSV, and plots. It draws the answers of
// package capacity about sizes that were not measured, with the basis of each number.
//
// sections.go has the parts of the page, tables*.go and plots*.go what they show, words.go and sentences.go their words.
// files.go stores the answer in plan.json, so that the page can be made again.
package page
