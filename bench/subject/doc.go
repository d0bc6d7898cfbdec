// Package subject names the proxies that can be tested.
//
//  1. Parse turns a name such as "kube-proxy@v1.34.2/nftables+gogc50", or "exec:NAME=COMMAND", into a Spec.
//  2. A Spec has the proxier, its mode with all that it can do, and the settings that differ from kube-proxy's.
//  3. ProxyConfig makes the KubeProxyConfiguration that all subjects of a run get.
//  4. Starts makes the command line of the subject's process.
//
// Not modelled: how a subject is measured (package bench).
package subject
