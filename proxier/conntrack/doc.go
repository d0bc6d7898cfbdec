// Package conntrack deletes conntrack entries of UDP flows that still go to an endpoint that they should have left.
//
// The kernel consults the nat table only for the first packet of a flow. The conntrack entry keeps the chosen address as
// long as packets keep coming. TCP notices a dead peer. A UDP sender with a fixed source port does not: it sends to a
// gone endpoint until the entry is deleted.
//
// The way of a change:
//
//  1. The proxier calls Set and Remove: which UDP frontends (addresses and ports of Services) go to which serving
//     endpoints. It calls Recall for endpoints that other rules may have sent flows to: rules of an earlier proxier
//     (backend.Inherited), or of a sync that failed.
//  2. After the rules are in the kernel, it calls Clean. If no flow can have become stale since the last successful
//     Clean, that is all.
//  3. Otherwise the Table visits the UDP flows of the family. It deletes those that Expectation.Stale, a pure function,
//     reports.
//
// Two tables exist: Kernel, over netlink, and Memory, for simulated nodes and tests. Sysctls and Apply set the conntrack
// limits and timeouts that kube-proxy sets at its start.
//
// Not modelled: entries that are confirmed behind the position of the walk, traffic policies and topology hints, flows
// to frontends that no surviving rule or memory names, and SCTP. See docs/design/conntrack.md, also for the differences
// from kube-proxy 1.37.
package conntrack
