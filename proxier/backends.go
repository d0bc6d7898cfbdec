package proxier

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/backend"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
	"synclab/proxier/nftables"
	"synclab/proxier/userspace"
)

// BackendKind selects the backend that writes a proxier's rules. It is also kube-proxy's name for the proxy mode.
type BackendKind string

// The backends.
const (
	// Iptables passes rules to iptables-restore.
	Iptables BackendKind = "iptables"
	// Nftables writes nf_tables over netlink.
	Nftables BackendKind = "nftables"
	// Userspace carries the packets in this process. iptables-restore writes the rules that lead them to it.
	Userspace BackendKind = "userspace"
)

// backends lists the kinds that newBackend can make.
var backends = []BackendKind{Iptables, Nftables, Userspace}

// newBackend makes the backend of a family.
func (o *Options) newBackend(family corev1.IPFamily, opts backend.Options) (Backend, error) {
	if o.Backend == Nftables {
		return nftables.New(nftables.Options{Options: opts, Family: family, Model: o.Model})
	}
	tables, err := o.newTables(family)
	if err != nil {
		return nil, err
	}
	if o.Backend == Userspace {
		return userspace.New(userspace.Options{Options: opts, Tables: tables, Report: o.Report})
	}
	restorer := iptables.Options{Options: opts, Tables: tables, Layout: o.Layout, Variant: o.Variant, Batch: o.Batch}
	if o.Variant == iptables.Nft && o.Tables == nil {
		if restorer.SendLimit, err = kernel.SendLimit(); err != nil {
			return nil, err
		}
	}
	return iptables.New(restorer)
}

// newTables makes the tables that backend Iptables writes.
func (o *Options) newTables(family corev1.IPFamily) (iptables.Tables, error) {
	if o.Tables != nil {
		return o.Tables(family)
	}
	opts := o.Restorer
	opts.Variant, opts.Family, opts.LockFile, opts.Clock = o.Variant, family, o.LockFile, o.Clock
	return iptables.NewHost(opts)
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
	return errors.Join(errs...)
}
