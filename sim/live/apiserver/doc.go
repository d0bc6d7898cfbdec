// Package apiserver starts a real API server for tests: an unmodified kube-apiserver over an unmodified etcd, on loopback.
//
//  1. Find looks for both programs on PATH; without them there is nothing to start, and tests say so.
//  2. Start gives them a directory of their own, free ports, keys and tokens, and waits until the server is ready.
//  3. Config is how a client gets in: as an administrator, or as somebody who may only list and watch what Service proxies
//     read.
//  4. Restart ends the server without warning and starts it again over the same etcd, as an upgrade does.
//
// Not modelled: controllers, kubelets, more than one server. Nothing but what the tests write ever changes, except for
// what the API server itself keeps (its lease, the Service "kubernetes").
package apiserver
