// Package upstream finds or builds commands that others wrote, unmodified: kube-proxy above all.
//
//  1. KubeProxy takes a path to a binary as it is, or a version of Kubernetes.
//  2. The pinned version is built from the module bench/kubernetes, which is found from the working directory upwards or
//     beside the executable; any other version from a module that is made for it, with the same replace lines.
//  3. Cache keeps what was built, by name, version and the Go that built it; two runs at once build once.
//
// Building needs Go and, the first time, the Go module proxy; neither works inside a lab's namespace: the parent calls
// KubeProxy before it makes one. The result is what the published module holds: no patch, no vendored copy.
//
// Not modelled: release binaries and container images, which differ in the Go that built them.
package upstream
