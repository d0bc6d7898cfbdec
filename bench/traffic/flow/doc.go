// Package flow sends flows to Services in step traffic, and records what becomes of them.
//
//  1. pods.go connects client pods and a process that answers for all other pods.
//  2. flows.go chooses targets and starts the stream (bench/traffic).
//  3. Before each change, Flows announces it to the flow checker. When the kernel shows the change, Flows reports that.
//     So the checker knows which endpoints may answer a flow.
//  4. Flows records each result, with the step in which the flow began.
package flow
