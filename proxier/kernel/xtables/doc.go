// Package xtables is the kernel interface of legacy iptables: socket options that query a table and copy it.
//
// A table is one block of entries. A built-in chain is its rules and then one entry for its policy. A user chain is a
// head (an ERROR target that carries the name), its rules, and one entry that returns. An ERROR entry named "ERROR"
// ends the table. So b built-in chains, u user chains and r rules are r + b + 2u + 1 entries.
//
// An entry is struct ipt_entry or ip6t_entry, any number of matches, and one target. The struct has addresses,
// interfaces, the protocol, the offsets of the target and of the next entry, and counters. Matches and targets begin
// with a header of 32 bytes (size, name, revision). Everything is aligned to 8 bytes. Numbers are in host byte order,
// except addresses. A target without a name is a verdict. A negative verdict ends the packet's path through the chain;
// others are the offset of the next entry.
//
// The package knows only the kernel's own, 64 bit, form of the structures: it is not for 32 bit programs.
package xtables
