// Package kernel reads the rulesets of iptables from the kernel, without the iptables tools.
//
//  1. Variant legacy: getsockopt(IPT_SO_GET_INFO) and, for names, IPT_SO_GET_ENTRIES, which copies a whole table.
//  2. Variant nft: netlink dumps of chains and of rules (NFT_MSG_GETCHAIN, NFT_MSG_GETRULE).
//
// It reads counts and the names of chains. Of a rule, it reads where the rule sends packets (Rule) and which
// destination it matches (ChainRule).
//
// iptables-save does far more. It rebuilds every rule as text, and its nft variant needs minutes for 110,000 chains
// (and may print nothing at all). A read never creates a table: a missing table, or one without its kernel module,
// counts zero. All reads are in the network namespace of the calling thread. They need CAP_NET_ADMIN in the user
// namespace that owns it.
package kernel
