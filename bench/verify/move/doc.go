// Package move lists what proxies have in the kernel, to find what one subject leaves behind when another one replaces it in
// the same network namespace.
//
//  1. Read lists chains and rules of both variants of iptables, tables of nf_tables, sets, virtual servers of IPVS, the device
//     kube-ipvs0 and its addresses, and conntrack entries with a translated destination.
//  2. Left counts what was there before the move and is there after it, without what the new subject uses.
//
// Not modelled: jumps in built-in chains (a chain that stays is counted, with or without them), nfacct objects, sysctls, tables of
// nf_tables with unknown names. If both subjects use the same chains, stale ones among them belong to the new subject. A subject
// whose rules are not known uses nothing.
package move
