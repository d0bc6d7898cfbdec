// Package traffic sends new flows to Services while a subject works, and checks their outcomes.
//
//  1. Start runs this program again as a separate process in the pods' namespaces (netns.Pods), so that the simulated
//     cluster's garbage collection and scheduling do not affect it. One of its threads, the responder, listens on each
//     port that endpoints have. It answers with the address and port of the packet after translation. So one process
//     simulates all pods.
//  2. Begin starts the stream on a second thread, in the clients' namespace. Flow i is scheduled at i/rate (open loop).
//     Each flow goes to the next of a shuffled round of Targets, from a new source port. TCP: connect, read the
//     identity, reset. UDP: one packet, one answer. A late flow starts late; it is never skipped. Long-lived flows stay
//     open in addition, and send a packet periodically.
//     A control flow goes with each, up to controlRate, straight to an endpoint of the Service. No rule translates it.
//  3. Each flow returns a Result: when it was scheduled, sent and over, and which endpoint answered or what failed.
//  4. The FlowChecker computes from the cluster's changes which endpoints each Service port had and when. bench/subject/visible
//     reports when each change was visible in the kernel. The FlowChecker checks each Result some seconds later, and reports
//     an Observed. An answer from an endpoint that no possible state had is misrouted. A flow that times out while a
//     control flow fails too is a control failure: the rules are not the cause.
//
// A flow fails if every possible state has an endpoint and there is no answer. It also fails if no state has an
// endpoint and it is not refused at once. See docs/design/flow-outcomes.md.
//
// Not modelled: SCTP, payload, retransmissions, pods that start and stop, clients outside of the cluster. A SYN has one
// chance: the flow gives up before the kernel sends it again. A removed endpoint still answers, like a terminating pod,
// so that flows to it are observed. Closed loops of connections (Loop) run without a stream: they measure, and check no outcome.
package traffic
