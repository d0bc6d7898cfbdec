package config

import (
	"cmp"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/ptr"
)

// Settings are what each mode of kube-proxy has in a section of its own.
type Settings struct {
	SyncPeriod, MinSyncPeriod time.Duration
	MasqueradeAll             bool
	MasqueradeBit             int
}

// String returns the settings in words.
func (s *Settings) String() string {
	text := fmt.Sprintf("minSyncPeriod %v, syncPeriod %v, masqueradeBit %d", s.MinSyncPeriod, s.SyncPeriod, s.MasqueradeBit)
	if s.MasqueradeAll {
		text += ", masqueradeAll"
	}
	return text
}

// modes are those of Linux.
var modes = []v1alpha1.ProxyMode{ModeIPTables, ModeIPVS, ModeNFTables}

// section has the places of a mode's settings.
type section struct {
	name          string
	sync, least   *metav1.Duration
	masqueradeAll *bool
	masqueradeBit **int32
}

// sectionOf returns the section of a mode. Mode ipvs masquerades as section iptables says. Other modes than kube-proxy's
// use that section too.
func sectionOf(cfg *v1alpha1.KubeProxyConfiguration, mode v1alpha1.ProxyMode) section {
	ipt, ipvs, nft := &cfg.IPTables, &cfg.IPVS, &cfg.NFTables
	switch mode {
	case ModeNFTables:
		return section{"nftables", &nft.SyncPeriod, &nft.MinSyncPeriod, &nft.MasqueradeAll, &nft.MasqueradeBit}
	case ModeIPVS:
		return section{"ipvs", &ipvs.SyncPeriod, &ipvs.MinSyncPeriod, &ipt.MasqueradeAll, &ipt.MasqueradeBit}
	}
	return section{"iptables", &ipt.SyncPeriod, &ipt.MinSyncPeriod, &ipt.MasqueradeAll, &ipt.MasqueradeBit}
}

// SettingsOf returns the settings of a proxy that runs in a mode.
func SettingsOf(cfg *v1alpha1.KubeProxyConfiguration, mode v1alpha1.ProxyMode) Settings {
	s := sectionOf(cfg, mode)
	return Settings{s.sync.Duration, s.least.Duration, *s.masqueradeAll, int(ptr.Deref(*s.masqueradeBit, defaultBit))}
}

// Change changes the settings of every mode.
func Change(cfg *v1alpha1.KubeProxyConfiguration, change func(*Settings)) {
	for _, mode := range modes {
		s, to := SettingsOf(cfg, mode), sectionOf(cfg, mode)
		change(&s)
		to.sync.Duration, to.least.Duration = s.SyncPeriod, s.MinSyncPeriod
		*to.masqueradeAll, *to.masqueradeBit = s.MasqueradeAll, ptr.To(int32(s.MasqueradeBit))
	}
}

// defaultBit is the default of masqueradeBit.
const defaultBit = 14

// defaultSections completes the sections of all modes.
func defaultSections(cfg *v1alpha1.KubeProxyConfiguration) {
	cfg.IPTables.LocalhostNodePorts = cmp.Or(cfg.IPTables.LocalhostNodePorts, ptr.To(true))
	own := sectionOf(cfg, cfg.Mode)
	period(own.sync, 30*time.Second)
	if cfg.Mode != ModeIPVS { // there, unset is no limit
		period(own.least, time.Second)
	}
	for _, mode := range modes {
		s := sectionOf(cfg, mode)
		period(s.sync, own.sync.Duration)
		period(s.least, own.least.Duration)
		if mode != ModeIPVS {
			period(s.least, time.Second)
		}
		*s.masqueradeAll = *s.masqueradeAll || *own.masqueradeAll
		*s.masqueradeBit = cmp.Or(*s.masqueradeBit, ptr.To(ptr.Deref(*own.masqueradeBit, defaultBit)))
	}
}
