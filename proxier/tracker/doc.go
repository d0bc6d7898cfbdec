// Package tracker turns informer events into the changes of one sync.
//
// The way of the data:
//
//  1. A Digester translates an API object once (ServicePort, Endpoint), in the informer or in the event handler. An event
//     of the object marks its Service dirty. Endpoints of one object share their memory and texts.
//  2. Take builds the desired state of every dirty Service and drops those that equal the installed state. It returns the
//     rest as previous→current pairs.
//  3. Commit makes the current state the installed one. Requeue requeues the changes of a failed sync with their trigger
//     times. The next Take returns them again, merged with newer changes.
//
// "Installed" always means the state after the last successful sync. So coalescing and no-op detection stay correct
// across failures, and post-sync work (conntrack cleanup, latency observation) is never lost with a sync.
//
// This package imports neither sim nor bench.
//
// A Tracker serves one IP family. It is safe for concurrent use. It contains no rules, chains or clock.
package tracker
