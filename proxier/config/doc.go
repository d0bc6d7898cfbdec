// Package config reads the proxier's configuration: a KubeProxyConfiguration, v1alpha1, as kube-proxy takes it with
// --config, so that a file from a cluster can be put under test as it is.
//
//  1. Load decodes the file strictly: what it does not know, it refuses, with file, line and field.
//  2. Default fills what the file leaves open with kube-proxy's defaults.
//  3. Validate names everything that is wrong at once, each problem with its field.
//  4. DetectLocal and NodePortAddresses turn two groups of fields into what the rules need of them.
//
// Not modelled: feature gates (accepted and ignored: the proxier behaves as if each gate had its default), the Windows
// settings, and the logging and client settings beyond their syntax (the lab has its own log and its own cluster).
// The modes iptables and nftables are taken; ipvs and kernelspace are known and refused.
package config
