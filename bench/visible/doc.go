// Package visible says when a change of the cluster became visible in the kernel, for any proxier, from outside of it:
// network programming latency is the time from a change's due time until its Sight.
//
//  1. Changed is told of each change as it is made. Through the project's tracker and plan, which are pure, it becomes
//     the endpoints that each Service port should dispatch to from then on: those of traffic that may go anywhere
//     (Cluster) and of traffic that has to stay on the node (Local). A change that alters neither is not awaited.
//  2. Each port has a queue of the states that it should come to. The state that the kernel shows ends the wait for it
//     and for all before it: a state that was superseded before any sync saw it never shows by itself.
//  3. While something is pending, a cheap number that moves with each commit is polled, and once it moved, the pending
//     ports are looked up. A state is visible as of the moment when the number was seen to have moved, so Sights are late
//     by a period at most: a fiftieth of what the oldest change has waited, within some 70 µs and a millisecond. If it moved again during the looks, what is found from then on
//     counts from the later moment. A moment before the change was made, or before a look that still missed it, cannot be
//     the one: see step 5.
//  4. Sights are told in one goroutine. Wait, Recheck and Quiet let steps of a scenario wait for the kernel; Installed
//     counts what it holds.
//  5. What a Sight says is never earlier than possible, and no look short. In nf_tables every commit moves the number. In
//     variant legacy one may be seen by reading alone: then Visible is the end of that read, which is the latest that it
//     can have been, and Since the earliest. A change that was undone before any look saw it (A → B → A) has its Sight as
//     soon as the kernel is seen to have A, marked Undone: nothing had to be written, so it is no sample of how long
//     writing takes.
//
// What is read, and how, depends on how a subject writes rules: a Dialect. There are four, and another layout needs no
// more than that interface.
//
//   - iptables-legacy: a table is one block, so a look is one copy of nat (IPT_SO_GET_ENTRIES), and the number that
//     moves is its size (IPT_SO_GET_INFO). A replace that keeps the size moves nothing: whoever runs the subject's
//     tools tells of their end (ToolEnded). Where nobody does, the table is read again now and then, for at most a
//     twentieth of the time. While the kernel copies a table, a replace of it waits: this is the one way in which
//     watching holds a subject up.
//   - iptables-nft: the rules of a port's own chains, over netlink, and those of KUBE-SERVICES once a commit.
//   - nftables: kube-proxy's nftables mode: the rules of a port's own chains and the maps in them.
//   - synclab-nftables: the lab's own backend nftables: single keys of its maps, from a port's addresses on, as packets
//     find their way.
//
// The chains of layout tree, between KUBE-SERVICES and a port's own, are followed; a rule in a port's own chain that
// translates to an endpoint by itself is as good as one that jumps to the endpoint's chain. A subject may write a port's chains
// long before it leads packets there: what is visible is only what the shared chains lead to.
//
// The number that moves in nf_tables is the generation (NFT_MSG_GETGEN). Its events (the group NFNLGRP_NFTABLES) would
// save the polling, but as soon as one socket listens, the kernel writes a message for every rule, element and chain of
// every transaction, in the time of whoever commits: the subject would pay for being watched.
//
// Not modelled: how a port without endpoints refuses (a Service that was never dispatched is not awaited either, until
// it has endpoints), addresses, NodePorts, masquerading and affinity: the endpoints alone say whether a change arrived.
// Where Services share an address, the oldest has it: what only such an address of a younger one would lead to is not
// waited for in synclab-nftables; in kube-proxy's nftables it is enough that the port's chains are there.
// A rule that a reader does not know is told apart from one that is not there yet: when it stays for some seconds at a port
// that is late, the Watcher fails with it (Unrecognised).
//
// The mirror of the cluster costs
// memory in this process, some 200 bytes an endpoint, and a look in variant legacy a copy of the table: read peak RSS
// with that in mind.
package visible
