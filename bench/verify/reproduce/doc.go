// Package reproduce makes a slow call of a tool a matter of a shell script and a file, without Synclab.
//
//  1. Find takes the slowest call whose input a run with --profile kept, and the calls before it.
//  2. Write writes the inputs, and a script that gives them to the tools in a new network namespace and measures the last one.
//  3. Shrink makes the last input smaller, as long as the call stays superlinear: first to fewer Services (owners.go), then by
//     kinds of lines (bench/verify/shrink).
//
// Not modelled: what else the proxier had in the kernel, such as rules that it wrote one by one with iptables.
package reproduce
