// Package random makes clusters as unusual as an API server accepts them, for tests: legacy addresses, slices that share addresses,
// policies in every combination.
//
//  1. New makes a Cluster of a seed; Objects are its state.
//  2. Next changes it, and returns the changes.
package random
