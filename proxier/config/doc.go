// Package config reads the proxier's configuration: a KubeProxyConfiguration, v1alpha1, as kube-proxy takes it with
// --config. A file from a cluster can be used unchanged.
//
//  1. Load finds the configuration: a file of its own, one of several documents, or in the ConfigMap of a cluster. It
//     decodes it as kube-proxy does, and reports file, line and field of what is wrong.
//  2. Default sets unset fields to kube-proxy's defaults. A mode's section takes what it does not set from the section of
//     the configuration's mode; SettingsOf returns what a proxy of a mode has.
//  3. Validate reports all problems at once, each with its field. It refuses what kube-proxy refuses.
//  4. Notes of Load name every setting that is accepted without its usual effect.
//  5. DetectLocal, NodePortAddresses and NodeIPs compute what the rules need from groups of fields.
//
// Not modelled: feature gates except AllowServiceExternalIPs (the proxier behaves as if each gate had its default), the
// Windows settings, and the logging settings except verbosity.
package config
