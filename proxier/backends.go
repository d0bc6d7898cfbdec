package proxier

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/backend"
	"synclab/proxier/iptables"
	"synclab/proxier/iptables/direct"
	"synclab/proxier/kernel"
	"synclab/proxier/nftables"
)

// BackendKind is what writes a proxier's rules.
type BackendKind string

// The backends.
const (
	// Iptables hands rules to iptables-restore.
	Iptables BackendKind = "iptables"
	// Direct hands the kernel's own tables to the kernel, legacy variant only.
	Direct BackendKind = "iptables-direct"
	// Nftables speaks nf_tables over netlink.
	Nftables BackendKind = "nftables"
)

// backends are those there are; newBackend makes them.
var backends = []BackendKind{Iptables, Direct, Nftables}

// newBackend makes the backend of a family.
func (o *Options) newBackend(family corev1.IPFamily, opts backend.Options) (Backend, error) {
	if o.Backend == Nftables {
		return nftables.New(nftables.Options{Options: opts, Family: family, Model: o.Model})
	}
	tables, err := o.newTables(family)
	if err != nil {
		return nil, err
	}
	restorer := iptables.Options{Options: opts, Tables: tables, Layout: o.Layout, Variant: o.Variant, Batch: o.Batch}
	if o.Variant == iptables.Nft && o.Tables == nil {
		if restorer.SendLimit, err = kernel.SendLimit(); err != nil {
			return nil, err
		}
	}
	return iptables.New(restorer)
}

// newTables makes what backends Iptables and Direct write to.
func (o *Options) newTables(family corev1.IPFamily) (iptables.Tables, error) {
	if o.Tables != nil {
		return o.Tables(family)
	}
	opts := o.Restorer
	opts.Variant, opts.Family, opts.LockFile, opts.Clock = o.Variant, family, o.LockFile, o.Clock
	if o.Backend == Direct {
		return direct.New(opts)
	}
	return iptables.NewHost(opts)
}

// ownSection makes the fields that the backends share say what the section of the backend says. From here on the
// configuration's section for iptables is the backend's.
func (o *Options) ownSection() {
	if o.Backend != Nftables {
		return
	}
	cfg, from := *o.Config, &o.Config.NFTables
	to := &cfg.IPTables
	to.MasqueradeAll, to.MasqueradeBit = from.MasqueradeAll, from.MasqueradeBit
	to.MinSyncPeriod, to.SyncPeriod = from.MinSyncPeriod, from.SyncPeriod
	o.Config = &cfg
}

func (o *Options) validateBackend() error {
	var errs []error
	if !slices.Contains(backends, o.Backend) {
		errs = append(errs, fmt.Errorf("backend %q: want one of %v", o.Backend, backends))
	}
	if !slices.Contains(iptables.Layouts, o.Layout) {
		errs = append(errs, fmt.Errorf("layout %q: want one of %v", o.Layout, iptables.Layouts))
	}
	if o.Variant != iptables.Legacy && o.Variant != iptables.Nft {
		errs = append(errs, fmt.Errorf("variant %q: want legacy or nft", o.Variant))
	}
	if o.Backend == Direct && o.Variant != iptables.Legacy {
		errs = append(errs, fmt.Errorf("backend %s: variant %s has no tables of that kind", Direct, o.Variant))
	}
	return errors.Join(errs...)
}
