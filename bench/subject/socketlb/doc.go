// Package socketlb runs Cilium's programs for sockets over the maps that its control plane writes. The kernel runs them
// when a process of a cgroup connects a socket or sends a datagram: they replace the address of a Service by that of a
// backend, before there is a packet. Cilium calls that socket-level load balancing.
//
//  1. The control plane makes its maps while it starts. Attach finds them among its open files.
//  2. Attach loads the programs with these maps in place of their own, and attaches them to the cgroup.
//  3. They stay attached until the next Attach or Close. So they serve flows, over the old maps, while there is no control
//     plane.
//
// Not modelled: Cilium's programs for packets, and those of the control plane's agent beside them. So only sockets of the
// cgroup's processes reach Services, and the lab uses cluster IPs alone. Session affinity is by network namespace, not by
// client address.
package socketlb
