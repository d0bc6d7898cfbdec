// Package review is the page and the comment on a change of a proxier: what it costs, where the time went, whether it
// still does the same, and how to repeat it.
package review
