// Package prefix lays out rules that match a destination (address, protocol, port) in chains, so that a packet crosses
// a number of rules that grows with the logarithm of how many there are, and adding or removing a rule changes few
// chains. It knows nothing of iptables' text: what it calls a value is a group of rules of its caller.
//
// The way of the data:
//
//  1. Key is what a value's rules match, written as one string of bits: the address, two bits of protocol, the port. A
//     tree of ports alone has no address bits.
//  2. The trie (trie.go) holds the values under their keys: binary, path-compressed, with the number of rules below
//     every node.
//  3. Carving (carve.go) cuts a set of keys, from the bottom up, into clusters: a node whose uncut part has reached a
//     size becomes the top of one. A cluster is a prefix without the clusters already cut out below it; tested in that
//     order, deepest first, a prefix match is enough to find it. What is left at the top is the rest.
//  4. Tree makes a chain of every cluster: small ones hold their values' rules, larger ones are carved again, a third of
//     the size each time. The root is a chain of the caller's, with all rules or one jump. Update brings the chains up to
//     date and says which of them differ.
//  5. Match is what the rule that leads to a cluster tests: a destination prefix, then a protocol, then a range of ports.
//
// Clusters hold between size and twice the size less two rules, whatever the keys are, since a node has two children and
// neither has reached it. Hence the bounds, for any set of addresses: each child of a cluster's top is cut into two
// clusters of a third of the size at most, so that a chain has up to four branches and the rest; and there are log n to
// the base 3 levels of chains. No set of 50,000 keys can make a packet cross more than 48 rules on its way to one of them:
// the jumps of the built-in chain and of the root, 2 rules at level 8, 7 at level 7, where clusters are a quarter, 5 at
// each of levels 6 to 2, and at level 1 four and a rest of 8. TestWorst has the set; others come to some 34 (TestBounds).
//
// The chains are a function of the keys and the numbers of their rules alone, not of the order in which they came: a
// tree that was changed a thousand times equals one made anew. There is no hysteresis, and none is needed for churn to
// stay cheap: a key at the edge of a size moves that edge, and with it those of the clusters above it on its path. That
// is one chain or a few where the addresses are dense or spread evenly, and never more than the path has bits, at each
// level (TestTouched has a set where it is 15).
//
// Branches are gotos: a packet whose destination is none of a prefix leaves the whole tree at once, and the nft
// variant's jump stack of 16 frames holds one frame for it. The kernel's check of a new ruleset counts gotos as well,
// though; MaxDepth keeps far enough from it.
package prefix
