// Package socketlb runs Cilium's programs for sockets over the maps that its control plane writes. The kernel runs them
// when a process of a cgroup connects a socket or sends a datagram: they replace the address of a Service by that of a
// backend, before there is a packet. Cilium calls that socket-level load balancing.
//
//  1. The control plane makes its maps while it starts. Attach finds them among its open files.
//  2. Attach loads the programs with these maps in place of their own, and attaches them to the cgroup.
//  3. They stay attached until the next Attach or Close. So they serve flows while the control plane is down.
//
// Not modelled: Cilium's programs for packets. So only sockets of the cgroup's processes reach Services, and only at
// cluster IPs, external IPs and addresses of load balancers: a NodePort needs the map of the node's own addresses
// (ipcache), which another part of Cilium writes.
package socketlb
