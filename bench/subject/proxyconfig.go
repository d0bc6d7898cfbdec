package subject

import (
	"strings"

	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/proxier/config"
	"synclab/scenarios"
)

// ProxyConfig returns cfg, or kube-proxy's defaults if cfg is nil, with the scenario's overrides. For a generated
// cluster it adds the pods' ranges for detect-local.
func ProxyConfig(cfg *v1alpha1.KubeProxyConfiguration, s *scenarios.Scenario, generated bool) *v1alpha1.KubeProxyConfiguration {
	if cfg == nil {
		cfg = config.New()
	}
	cfg = cfg.DeepCopy()
	p := &s.Proxy
	if p.MinSyncPeriod > 0 {
		cfg.IPTables.MinSyncPeriod.Duration = p.MinSyncPeriod
	}
	if p.SyncPeriod > 0 {
		cfg.IPTables.SyncPeriod.Duration = p.SyncPeriod
	}
	cfg.IPTables.SyncPeriod.Duration = max(cfg.IPTables.SyncPeriod.Duration, cfg.IPTables.MinSyncPeriod.Duration)
	if p.MasqueradeAll {
		cfg.IPTables.MasqueradeAll = true
	}
	if p.NodePortAddresses != nil {
		cfg.NodePortAddresses = p.NodePortAddresses
	}
	if p.LocalhostNodePorts != nil {
		cfg.IPTables.LocalhostNodePorts = p.LocalhostNodePorts
	}
	// All backends get the same settings.
	cfg.NFTables.MinSyncPeriod, cfg.NFTables.SyncPeriod = cfg.IPTables.MinSyncPeriod, cfg.IPTables.SyncPeriod
	cfg.IPVS.MinSyncPeriod, cfg.IPVS.SyncPeriod = cfg.IPTables.MinSyncPeriod, cfg.IPTables.SyncPeriod
	cfg.NFTables.MasqueradeAll, cfg.NFTables.MasqueradeBit = cfg.IPTables.MasqueradeAll, cfg.IPTables.MasqueradeBit
	if cfg.ClusterCIDR == "" && generated {
		cfg.ClusterCIDR = strings.Join(s.Shape.PodCIDRs, ",")
	}
	return cfg
}
