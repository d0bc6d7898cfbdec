// Package netns runs this program again as a worker in a new network namespace. Nothing that Synclab does to rules,
// routes or addresses can then reach the machine or its network.
//
// How a worker starts:
//
//  1. Reexec removes what killed runs left behind. It makes a private directory with a lock file for the xtables tools.
//     It starts /proc/self/exe in a new network, mount and PID namespace, and in a new user namespace if necessary.
//  2. The worker first calls Enter. Enter brings lo up. It refuses the parent's namespace, and any namespace with
//     another interface or a default route.
//  3. Connect gives the namespace a node's addresses, and routes for Services and pods that end in a device without a
//     receiver. If packets need answers, ConnectPods makes two more namespaces: one for client pods, and one for all
//     other pods. The node routes between them.
//
// How a worker ends: it exits with its parent, however the parent ends. It gets a parent-death signal, and watches a
// pipe from the parent. The kernel then kills the worker's children (PID namespace), and namespaces without a process
// are gone. The next run removes the directory: see package temporary.
//
// TestMain and Fresh do the same for tests: a test binary enters a namespace by itself.
//
// Boot does the same on another kernel, User-mode Linux. That kernel is a process of the host. RunGuest is its first process:
// it mounts the guest's file systems, calls Reexec for the worker, and passes on its output, exit status and interrupts.
//
// Not modelled: more than one node, links out. The package imports only bench/lab/temporary, so that tests of any layer
// may use it. See docs/design/namespaces.md.
package netns
