// Package pass has what all parts of one repetition share.
//
//  1. The parent sends a worker its Assignment.
//  2. Env holds the repetition's settings, cluster and clock. It is filled before the first step.
//  3. Parts send records, notes and progress to the parent as Messages.
//  4. Events connect the parts: a part that causes an event does not know its listeners.
//  5. Dispatch reads the order of the Services' dispatch rules from the kernel.
package pass
