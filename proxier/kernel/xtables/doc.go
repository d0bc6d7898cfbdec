// Package xtables is how legacy iptables speaks to the kernel: socket options that ask for a table, copy it out and put
// another in its place.
//
// A table is one block of entries. A built-in chain is its rules and then one entry for its policy. A user chain is a
// head (an ERROR target that carries the name), its rules, and one entry that returns. An ERROR entry named "ERROR"
// ends the table. So with b built-in chains, u user chains and r rules there are r + b + 2u + 1 entries.
//
// An entry is struct ipt_entry or ip6t_entry (addresses, interfaces, protocol, where the target and the next entry are,
// counters), any number of matches, one target. Matches and targets begin with a header of 32 bytes (size, name,
// revision). Everything is aligned to 8 bytes, numbers are the host's but for addresses. A target without a name is a
// verdict: negative ones end the walk through the chain, others are the offset of the entry to go on with.
//
// Only the kernel's own, 64 bit, form of the structures is known: this package is not for 32 bit programs.
package xtables
