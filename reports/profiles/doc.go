// Package profiles says where the time of syncs goes, from the profiles of a run (bench/lab/profile).
//
//  1. Load reads the profiles that the records name, and adds up the CPU time of each function per sync, for each
//     repetition.
//  2. Grow fits the time of each function over the sizes of a sweep, and says which functions make a sync grow faster than
//     the cluster.
//  3. Flame draws the stacks of one kind of sync.
//
// The time of a function is its own, without that of functions that it calls, so that times add up to that of the sync.
// With is the time with those. Time is CPU time of all threads: a sync may wait, and then takes longer than that, or use
// several CPUs.
package profiles
