// Package api is the simulated cluster's API: client-go's fake clientset with resource versions, real watches and their faults.
//
//  1. Cluster holds the objects. Load and Apply write them; NewInformers are real shared informers on it.
//  2. Each write is an entry in the journal of its resource (journal.go), from which every watch reads at its own pace.
//  3. Play applies a trace, each change at its due time (play.go). Observe reports each write (observe.go).
//  4. A WatchFaults stalls, repeats and reorders events; watches are dropped and forget what they missed (gap.go).
//
// Package sim/front serves the same cluster over HTTP.
package api
