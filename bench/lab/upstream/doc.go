// Package upstream finds or builds unmodified commands of other projects, above all kube-proxy.
//
//  1. KubeProxy takes the path of a binary, or a version of Kubernetes.
//  2. The pinned version is built from kubernetes.mod and kubernetes.sum, which are embedded in this program. Any other
//     version is built from a generated module with the same replace lines. Go runs in private folders, so files in the
//     working directory or above it have no effect.
//  3. Cache stores each built file by name, version and Go version, with its origin. A file that was changed since, or
//     has another origin, is built again. Two concurrent runs build it once.
//
// A build needs Go and, the first time, the Go module proxy. Neither works inside a namespace of Synclab, so the parent
// calls KubeProxy first. The result is the published module: no patch, no vendored copy.
//
// Cilium does the same for the control plane of Cilium's load balancer, from cilium.mod and cilium.sum. It also compiles
// Cilium's programs for sockets, with clang.
//
// Linux does the same for kernels that run as User-mode Linux, from Debian's packages of Linux's source (linux.config).
//
// Not modelled: release binaries and container images, which are built with another Go version.
package upstream
