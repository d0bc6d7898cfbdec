// Synclab measures a real Service proxier on a real kernel, driven by a simulated cluster.
//
//  1. main.go turns signals into a context and errors into an exit status.
//  2. Each subcommand is a file: run, compare, report, plan, rules, serve, proxy, capture, scenarios and so on.
//     It reads its flags into an options struct and calls one function of another package, which decides and measures.
//  3. inputs.go has the flags that several subcommands share. output.go prints results as a table, JSON or YAML.
//
// Exit status: 0 done, 1 failed, 2 the command line or an input file is wrong (nothing was started), 3 conform could not
// compare, 130 interrupted.
package main
