// Package conntrack removes the connection tracking entries that keep UDP
// flows on endpoints they should have left.
//
// The kernel consults the nat table only for the first packet of a flow; the
// address chosen then stays in the conntrack entry for as long as packets keep
// coming. TCP notices a dead peer, a UDP sender with a fixed source port does
// not: it feeds a gone endpoint until its entry is deleted.
//
// The way of a change:
//
//  1. The proxier tells the Cleaner which UDP frontends (addresses and ports
//     of Services) lead to which serving endpoints: Set and Remove.
//     What rules led flows to that it did not make, or does not know whether
//     they were made, it tells too: Recall. A proxier that starts reads which
//     frontends the rules in the kernel lead to which endpoints, before it
//     writes over them (backend.Inherited); and a sync that fails may have
//     written some of what it was to.
//  2. After the rules are in the kernel it calls Clean. When nothing was lost
//     since the last successful Clean, that is all.
//  3. Otherwise the Table walks the UDP flows of the family and deletes those
//     that Expectation.Stale, a pure function, calls stale.
//
// Two tables exist: Kernel, through netlink, and Memory, for simulated nodes
// and for tests. Sysctls and Apply set the conntrack limits and timeouts that
// kube-proxy sets at its start.
//
// What it does differently from kube-proxy 1.37, and why:
//
//   - A Service that lost its last endpoint, or was deleted, is cleaned.
//     kube-proxy skips NodePorts of Services without endpoints (up to 1.36 all
//     of such a Service) and never looks at deleted Services, so their flows go
//     on into the void (a report tells of 13 hours).
//   - An entry to the number of a nodePort is stale only if its destination is
//     an address of this node. kube-proxy compares the port alone and so
//     resets flows that merely use the same port number elsewhere.
//   - What is to be cleaned survives a failure. kube-proxy forgets it when the
//     restore fails. Here it stays pending until a Clean has succeeded.
//   - Frontends that went while no proxier ran, and those that only failed syncs
//     knew, are cleaned as deleted ones are. kube-proxy has never heard of the
//     former and has forgotten the latter. Flows that something else redirects
//     stay: they end at no endpoint that the rules led to.
//   - A new address of a Service is a reason to clean, too: a flow that began
//     before the rules of the address existed has an entry without NAT.
//     kube-proxy reacts to endpoint changes only.
//   - The table is not loaded into memory. The kernel is asked for UDP only
//     (Linux 5.8 filters the dump; an older one ignores the wish and sends
//     everything), entries are judged as they arrive, and stale ones are
//     deleted at once by tuple and id. Memory does not grow with the table,
//     and requests number one per stale entry.
//
// Not modelled: an entry whose first packet crossed the old rules and is
// confirmed only after the walk has passed its place; traffic policies and
// topology hints (any serving endpoint of the Service is a fair one for a
// flow that has it); a proxier that is killed after its rules were written and
// before Clean, when the Services that this was about are deleted before the
// next one starts, or rules that were flushed, or written by another backend
// or mode, while none ran: what they led to, nothing remembers; SCTP, whose
// peers notice as those of TCP do.
package conntrack
