package sim

import "regexp"

var proxyConfig = regexp.MustCompile(`(?m)(?:^|[{,])[ \t]*["']?kind["']?[ \t]*:[ \t]*["']?KubeProxyConfiguration\b`)

// IsProxyConfig reports whether a text, such as one of a ConfigMap, is a configuration of kube-proxy in YAML or JSON. A
// script or a comment may name one. The proxier's reader has the same pattern, and imports nothing of this package.
func IsProxyConfig(text string) bool { return proxyConfig.MatchString(text) }
