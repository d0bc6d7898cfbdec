// Package netns runs this program again as a worker in a network namespace that it made itself, so that nothing the
// lab does to rules, routes or addresses can reach the machine or its network.
//
// The way in:
//
//  1. Reexec sweeps what killed labs left, makes a private directory with a lock file for the xtables tools, and starts
//     /proc/self/exe in a new network, mount and PID namespace (and a new user namespace when it may not otherwise).
//  2. The worker calls Enter first. Enter refuses the namespace its parent was in, and any namespace with a link or a
//     default route; it brings lo up.
//  3. Topology gives the namespace a node's addresses, and routes for services and pods that end in a device without
//     a far side. Where packets shall be answered, ConnectPods makes two more namespaces instead: one of pods that send,
//     and one that is all other pods; the node routes between them.
//
// The way out: the worker ends with its parent, whatever ends the parent (parent-death signal, and a pipe whose end the
// worker watches), the kernel ends the worker's children with it (PID namespace), and namespaces without a process are
// gone. The directory is held by a lock (flock) that also ends with the parent; the next Sweep removes it.
//
// TestMain and Fresh do the same for tests: a test binary enters a namespace by itself.
//
// Not modelled: more than one node, links out. The package imports nothing else of synclab, so that tests of any
// room may use it.
package netns
