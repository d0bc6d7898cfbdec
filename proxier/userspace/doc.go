// Package userspace is the backend userspace: the proxier itself carries the packets of Services, as kube-proxy's mode
// userspace did until 1.25. It is there to be compared with, not to be used.
//
// The way of the data, for one family:
//
//  1. Each Service port has one listening socket at the node's address, with a number that no other port has.
//  2. Rules (rules.go) in table nat of iptables translate each frontend of the port to that socket. Packets from outside
//     and from pods meet KUBE-PORTALS-CONTAINER and KUBE-NODEPORT-CONTAINER, those of the node itself KUBE-PORTALS-HOST
//     and KUBE-NODEPORT-HOST. A sync that changes a frontend writes these chains again.
//  3. For each connection and each UDP flow, a balancer (balancer.go) picks the next endpoint: round robin, or that of the
//     same client before (affinity ClientIP). A change of endpoints changes the balancer alone, and no rule.
//  4. tcp.go and udp.go copy in both directions. A UDP flow ends when it was idle for some time.
//  5. The kernel does not know the endpoints. So the backend writes a line to a file whenever it has others (report.go):
//     package bench/subject/visible reads it.
//
// kube-proxy wrote REDIRECT where it listened at all addresses, and DNAT where bindAddress was one address. REDIRECT goes
// to the address of the device that a packet came in by. A routed pod network has none there, and the kernel drops the
// packet. So here it is always DNAT.
//
// Not modelled, nor was it in kube-proxy's: SCTP; traffic policies (if all traffic is internal and must stay local, the
// endpoints are the local ones); source ranges; nodePortAddresses. The endpoints see the node's address as the client's.
// Not modelled, but kube-proxy did it: stale UDP flows are not deleted from conntrack.
package userspace
