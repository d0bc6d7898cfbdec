// Package planning reads what `synclab plan` needs: census.go counts a cluster's objects and the changes between two dumps or
// in a trace, growth.go reads --grow.
package planning
