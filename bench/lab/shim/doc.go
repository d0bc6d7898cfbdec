// Package shim measures every call of a tool (iptables-restore, nft, …) from outside, for any caller.
//
//  1. Install makes a folder with a small program in front of each tool. The folder must be first on the subject's
//     PATH. The program (command/) is built once and cached.
//  2. For each call, the program runs the real tool with the same arguments, environment, input and output. It forwards
//     signals, and exits as the tool exits. It appends one line to a file: Call.
//  3. Calls returns these lines as they are written.
//  4. Fail and Kill inject faults into the next calls. Refuse injects faults into calls with a given input.
//  5. Cost measures what the program adds to a call with an input of a given size.
//
// The start is read right before the tool's process is made, the end right after it is gone. The program's own work is
// not in between. The tool's resources come from the kernel (wait4). The program's own CPU time is separate
// (getrusage).
//
// Not modelled: tools that a subject calls by an absolute path, and netlink, which needs no tool. A pipe on standard
// input is copied through a second pipe, so up to 64 KiB more may be buffered between subject and tool.
package shim
