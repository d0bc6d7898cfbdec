// Package rigtest makes a proxier over a generated world, for tests and benchmarks. It needs no informer events to sync: a
// caller applies changes and calls Sync. It is for tests only: the program does not link it.
package rigtest
