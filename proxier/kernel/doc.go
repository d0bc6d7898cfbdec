// Package kernel reads what iptables rulesets the kernel holds, without the iptables tools: counts, and chain names.
//
//  1. Variant legacy: getsockopt(IPT_SO_GET_INFO) and, for names, IPT_SO_GET_ENTRIES, which copies a whole table.
//  2. Variant nft: netlink dumps of chains and of rules (NFT_MSG_GETCHAIN, NFT_MSG_GETRULE).
//
// iptables-save does far more: it rebuilds every rule as text, and its nft variant needs minutes for 110,000 chains
// (and may print nothing at all). Reading never makes a table: a table that does not exist, or whose kernel module is
// not there, counts zero. Everything is read in the network namespace of the calling thread and needs CAP_NET_ADMIN in
// the user namespace that owns it.
//
// Of what rules say, it reads where they lead (Rule), and what they ask of a destination (Lead).
package kernel
