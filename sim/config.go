package sim

import "synclab/internal/yamldoc"

var proxyConfig = yamldoc.KindRow("KubeProxyConfiguration")

// IsProxyConfig reports whether a text, such as one of a ConfigMap, is a configuration of kube-proxy in YAML or JSON.
func IsProxyConfig(text string) bool { return proxyConfig.MatchString(text) }
