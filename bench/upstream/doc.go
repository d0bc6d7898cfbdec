// Package upstream finds or builds commands that others wrote, unmodified: kube-proxy above all.
//
//  1. KubeProxy takes a path to a binary as it is, or a version of Kubernetes.
//  2. The pinned version is built from kubernetes.mod and kubernetes.sum, which are part of this program; any other
//     version from a module that is made for it, with the same replace lines. Go works in private folders: what lies in
//     the working directory or above it decides nothing.
//  3. Cache keeps what was built, by name, version and the Go that built it, and says from what; what is not as it was
//     built is built anew. Two runs at once build once.
//
// Building needs Go and, the first time, the Go module proxy; neither works inside a lab's namespace: the parent calls
// KubeProxy before it makes one. The result is what the published module holds: no patch, no vendored copy.
//
// Not modelled: release binaries and container images, which differ in the Go that built them.
package upstream
