// Package config reads the proxier's configuration: a KubeProxyConfiguration, v1alpha1, as kube-proxy takes it with
// --config. A file from a cluster can be used unchanged.
//
//  1. Load decodes the file strictly. It refuses unknown fields and reports file, line and field.
//  2. Default sets unset fields to kube-proxy's defaults.
//  3. Validate reports all problems at once, each with its field.
//  4. DetectLocal and NodePortAddresses compute what the rules need from two groups of fields.
//
// Not modelled: feature gates except AllowServiceExternalIPs (accepted and ignored: the proxier behaves as if each gate
// had its default), the Windows settings, and the logging and client settings beyond their syntax (the lab has a
// separate log and a separate cluster). Modes iptables and nftables are supported; ipvs and kernelspace are refused.
package config
