// Package inspect reads the rules of a real node, from a file, and says what is in them. It changes nothing and needs no kernel.
//
//  1. Read finds the outputs of iptables-save, ip6tables-save and nft in a text (read.go), and turns
//     them into Tables: chains, and the maps of nf_tables as chains whose rules are the elements (nft.go).
//  2. services.go follows the rules from each address of a Service to endpoints.
//  3. Examine counts by owner (package owner), and finds leftovers and rules that point at nothing (findings.go, versions.go).
//  4. Compare renders the rules that the API's objects need, and compares: rule for rule, or by addresses and endpoints (compare.go).
//
// Not modelled: conntrack, IPVS, ipsets, eBPF; what a rule matches besides the address, the protocol and the port of a Service.
package inspect
