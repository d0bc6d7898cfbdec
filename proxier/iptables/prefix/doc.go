// Package prefix arranges rules that match a destination (address, protocol, port) in a tree of chains. A packet
// crosses a number of rules that grows with the logarithm of how many there are. Adding or removing a rule changes few
// chains. The package knows no iptables text: a value is a group of rules of the caller.
//
// The way of the data:
//
//  1. Key is the destination that a value's rules match, written as one string of bits: the address, two bits of
//     protocol, the port. A tree of ports alone has no address bits.
//  2. The trie (trie.go) stores the values under their keys: binary, path-compressed, with the number of rules below
//     every node.
//  3. Partitioning (carve.go) cuts a set of keys, from the bottom up, into partitions (type cluster). A node whose
//     uncut part has reached a size becomes the top of one. A partition is a prefix without the partitions already cut
//     out below it. Tested deepest first, a prefix match is enough to find it. The keys left at the top are the rest.
//  4. Tree makes a chain of every partition. A small one contains the rules of its values. A larger one is cut again,
//     into a third of the size each time. The root is a chain of the caller, with all rules or one jump. Update brings
//     the chains up to date and returns which of them differ.
//  5. Match is the test of a rule that jumps to a partition: a destination prefix, then a protocol, then a range of
//     ports.
//
// The chains depend only on the keys and their numbers of rules, not on the order of changes: a tree that was changed a
// thousand times equals a new one. See docs/design/prefix-tree.md for the bounds, and for why churn changes few chains.
package prefix
