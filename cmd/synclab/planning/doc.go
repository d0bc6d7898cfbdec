// Package planning reads what `synclab plan` needs and prints what it answers: census.go counts a cluster's objects and
// the changes between two dumps or in a trace, growth.go reads --grow, table.go has the answer for a terminal.
package planning
