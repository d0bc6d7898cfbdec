// Package visible measures when a change of the cluster becomes visible in the kernel. It works for any proxier, from
// outside. Network programming latency is the time from a change's scheduled time until its VisibleChange.
//
//  1. Changed (watcher.go) receives each change when it is made. Synclab's tracker and plan, which are pure, turn it into the
//     desired endpoints of each Service port. Cluster are those for traffic to any node, Local those for traffic that
//     must stay on this node. A change that alters neither is not awaited.
//  2. Each port has a queue of desired states (queue.go). When the kernel shows a state, the wait for it and for all states before
//     it ends: a state that was superseded before a sync never shows.
//  3. While changes are pending, a cheap number (look.go) that moves with each commit is polled. Once it has moved, the pending
//     ports are read. A state is visible from the moment when the number was seen to have moved: step proposes the
//     moment, lookAt renews it if the number moves again, momentOf bounds it (all in look.go). So
//     VisibleChanges are late by at most one poll period. It is a fiftieth of the oldest change's waiting time, between some 70 µs and a
//     millisecond.
//  4. One goroutine reports VisibleChanges to Options.Seen: package host records them. Wait, Recheck and Quiet let steps of
//     a scenario wait for the kernel. Installed counts the rules in the kernel.
//
// A RulesetReader reads the rules of one kind of subject. There are seven: iptables-legacy, iptables-nft, nftables
// (kube-proxy's), ipvs, cilium, synclab-nftables and userspace. Another layout needs only an implementation of that interface.
// The eighth, packets, reads no rules: it sends flows to the Services of a subject whose rules no other reader finds.
// docs/design/visibility.md explains the readers, and how exact a VisibleChange is.
//
// Not modelled: how a port without endpoints rejects packets (a Service is awaited once it has endpoints), addresses,
// NodePorts, masquerading and affinity. The endpoints alone decide whether a change has arrived. If Services share an
// address, the oldest has it. synclab-nftables does not await endpoints that only such an address of a younger Service
// would select. In kube-proxy's nftables it is enough that the port's chains exist.
//
// The mirror of the cluster needs memory in this process, some 200 bytes an endpoint. In variant legacy a read needs a
// copy of the table. Both are part of the peak RSS.
package visible
