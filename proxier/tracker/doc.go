// Package tracker turns informer events into the changes of one sync.
//
// The way of the data:
//
//  1. A Digester translates the API object once (ServicePort, Endpoint), in the informer or in the event handler, and an
//     event of it marks its Service dirty. Endpoints that come together share their memory and texts.
//  2. Take builds the wanted state of every dirty Service, drops those that are as installed, and hands out the rest
//     as previous→current pairs.
//  3. Commit makes the current state the installed one; GiveBack puts the changes of a failed sync back, with their
//     trigger times, so that the next Take hands them out again, merged with what came meanwhile.
//
// "Installed" always means what the last successful sync left, so coalescing and no-op detection stay right across
// failures, and work that follows a sync (conntrack cleaning, latency observation) is never lost with one.
//
// Pending is the rule of coalescing alone, for any kind of key: package sim/twin runs it for thousands of nodes without
// an object. This package imports neither sim nor bench.
//
// A Tracker serves one IP family. It is safe for concurrent use. It knows nothing of rules, chains or the clock.
package tracker
