package config

import (
	"slices"
	"testing"
)

func TestGates(t *testing.T) {
	cfg := New()
	if !ExternalIPs(cfg) || len(IgnoredGates(cfg)) != 0 {
		t.Errorf("without gates: external IPs %v, ignored %v", ExternalIPs(cfg), IgnoredGates(cfg))
	}
	cfg.FeatureGates = map[string]bool{"Zeal": true, "AllowServiceExternalIPs": false, "Alpha": false}
	if ExternalIPs(cfg) || !slices.Equal(IgnoredGates(cfg), []string{"Alpha", "Zeal"}) {
		t.Errorf("external IPs %v, ignored %v", ExternalIPs(cfg), IgnoredGates(cfg))
	}
}
