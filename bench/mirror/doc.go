// Package mirror knows what each Service port of the simulated cluster should do, as changes are made to it: who watches
// the kernel (bench/visible) and who judges flows (bench/traffic) hold against it what they see.
//
//  1. Changed is told of each change of a Service, an EndpointSlice or the Node.
//  2. The project's own tracker and plan, which are pure, make Service ports of it, one plan for each family.
//  3. It gives the ports that the change is about, as they were and as they are.
//
// Not modelled: what subjects see late, or never. A mirror is as exact as the lab's own tracker and plan, so it cannot find
// out what these get wrong: invariants I1 to I4 hold the kernel against kube-proxy's rules and against packets instead.
package mirror
