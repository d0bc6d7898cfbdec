// Package traffic sends new flows to Services while a subject works, and judges who answered them.
//
//  1. Start runs this program again as a process that lives in the pods' namespaces (netns.Pods): its own garbage
//     collections and its place in the scheduler are not those of the simulated cluster. One of its threads is the
//     responder: it listens on each port that endpoints have and answers with the address and port a packet came to,
//     after translation. So one process is all pods.
//  2. Begin starts the stream, on a second thread, in the clients' namespace: flow i is due at i/rate, each to the next
//     of a shuffled round of Targets, from a source port of its own. TCP: connect, read the identity, reset. UDP: one
//     packet, one answer. A flow that is late starts late; it is never left out. Beside it, held flows stay open and send
//     a packet each now and then.
//  3. Each flow comes back as a Result: when it was due, sent and over, and who answered or what went wrong.
//  4. The Ledger knows from the cluster's changes which endpoints each Service port may lead to and since when, and from
//     bench/visible when the kernel was seen to have each change. It judges a Result a little later, when the Sights of
//     what came before it are in: an answer from an endpoint that was in none of the states between the last one that
//     was visible when the flow was sent and the last one made before its end is misrouted. What it finds is an Observed.
//
// What counts as failed: a flow that was refused, timed out or was reset although each of these states had an endpoint;
// and a time-out where each of them says that there is none, which has to be refused at once. Where the states differ, or
// the Service is gone, both an answer and none are right, and none is not reported.
//
// A Service that grows and shrinks again, or an endpoint that is away for a moment, comes to states that it had before.
// Nothing tells such a state in the kernel from the earlier one, and what was between may still be to come: it counts as
// visible from returnSlack later only, or when a state after it is visible.
//
// How long a new endpoint waits, and how long a removed one is asked, is seen only as finely as flows go there: at 200 a
// second, half of them to at most focusMost Services that something happened to, one of ten endpoints is asked once a second.
//
// Not modelled: SCTP, payload, retransmissions (a SYN has one chance: it is given up before it would be sent again),
// pods that come and go (an endpoint that was removed still answers, as a terminating pod does, or else nobody could see
// that it was asked), clients outside of the cluster.
package traffic
