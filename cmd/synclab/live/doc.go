// Package live serves a page and Prometheus metrics of a run while it runs.
//
//  1. Show takes the same events as the terminal and --json. It only notes them.
//  2. A request renders the state at that time: / as a page, /metrics as metrics.
//  3. /events sends the page's sections again when the state has changed, at most twice a second.
//
// The server is in the process that starts the workers, never in a worker or a subject. Reading needs no token: docs/security.md
// says why.
//
// Not here: values within a repetition. Figures come when a repetition ends.
package live
