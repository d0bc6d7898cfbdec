// Package apiserver starts a real API server for tests: an unmodified kube-apiserver over an unmodified etcd, on
// loopback.
//
//  1. Find looks for both programs on PATH. Without them it returns ErrMissing.
//  2. Start gives them a separate directory, free ports, keys and tokens, and waits until the server is ready.
//  3. Admin and Reader return client configurations: for an administrator, and for a user who may only list and watch
//     what Service proxies read.
//  4. Restart kills the server and starts it again over the same etcd, as an upgrade does.
//
// Not modelled: controllers, kubelets, more than one server. Only the tests change objects, except for those that the
// API server itself maintains (its lease, the Service "kubernetes").
package apiserver
