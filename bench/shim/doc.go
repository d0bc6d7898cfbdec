// Package shim measures every call of a tool (iptables-restore, nft, …) from outside, whoever makes it.
//
//  1. Install makes a folder with a small program in front of each tool, to be first on the subject's PATH. The program
//     (command/) is built once, and kept.
//  2. A call runs the real tool with the same arguments, environment, input and output, hands signals on, and ends as
//     the tool ends. It appends one line to a file: Call.
//  3. Calls gives those lines as they come.
//  4. Fail and Kill plant faults that the next calls take, Refuse one that hits calls by what they are given.
//  5. Cost says what the program adds to a call that is given so many bytes.
//
// Start and end are read right before the tool's process is made and right after it is gone; what the program does
// before and after is not in between. Resources are those that the kernel counts for the tool (wait4); the program's own CPU time is told apart (getrusage).
//
// The program does not start in the Go runtime, whose start takes longer than a tool's: see command/main.go. It is
// there for Linux on amd64 and arm64.
//
// Not modelled: tools that a subject calls by an absolute path, and netlink, which needs no tool. A pipe on standard
// input is passed through a second pipe, so up to 64 KiB more may be under way between subject and tool.
package shim
