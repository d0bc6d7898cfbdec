package proxier

import (
	"fmt"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/backend"
	"synclab/proxier/config"
	"synclab/proxier/conntrack"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
)

// Machine lists the features of iptables and of the kernel that rules may use.
type Machine struct {
	// RandomFully: MASQUERADE supports --random-fully (iptables 1.6.2).
	RandomFully bool
	// Liberal: conntrack accepts packets outside the TCP window (nf_conntrack_tcp_be_liberal). No rule then has to drop
	// INVALID packets.
	Liberal bool
	// Accounting: the kernel has nfacct objects, and the proxier's objects exist. If the match is missing, the first
	// refused payload switches Accounting off (k/k#142068).
	Accounting bool
	// BPF: the kernel has the match bpf. If the tool lacks it, the first refused payload switches BPF off.
	BPF bool
}

func (m Machine) apply(s *backend.Settings) {
	s.RandomFully, s.DropInvalid, s.Accounting, s.BPF = m.RandomFully, !m.Liberal, m.Accounting, m.BPF
}

// liberalSysctl belongs to the network namespace. The file exists only after conntrack is loaded.
const liberalSysctl = "/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal"

// routeLocalnetSysctl lets packets with loopback addresses leave lo. NodePorts on 127.0.0.1 need that.
const routeLocalnetSysctl = "/proc/sys/net/ipv4/conf/all/route_localnet"

// ExamineMachine detects the features of iptables and of the kernel, and makes the nfacct objects. It works in the
// network namespace of the calling thread. Backend nftables has no variant, and no tool runs for it: nf_tables always
// masquerades with random ports.
func ExamineMachine(variant iptables.Variant) (Machine, error) {
	liberal, _ := os.ReadFile(liberalSysctl)
	if variant == "" {
		return Machine{RandomFully: true, Liberal: strings.TrimSpace(string(liberal)) == "1"}, nil
	}
	jumps, err := iptables.NewJumps(variant, corev1.IPv4Protocol)
	if err != nil {
		return Machine{}, err
	}
	bpf, err := kernel.HasMatch(string(variant), corev1.IPv4Protocol, "bpf", 1, 0)
	accounting := kernel.EnsureAccounts(iptables.AccountInvalid, iptables.AccountLocalNodePorts) == nil
	return Machine{
		RandomFully: jumps.RandomFully(),
		Liberal:     strings.TrimSpace(string(liberal)) == "1",
		Accounting:  accounting,
		BPF:         bpf && err == nil,
	}, nil
}

// prepareNode writes the sysctls that the configuration asks for.
func (p *Proxier) prepareNode() error {
	if !p.opts.Sysctls {
		return nil
	}
	if err := conntrack.ApplySysctls("/", &p.opts.Config.Conntrack); err != nil {
		return fmt.Errorf("write conntrack sysctls: %w", err)
	}
	if !slices.Contains(p.opts.Families, corev1.IPv4Protocol) {
		return nil
	}
	nodePorts, err := config.NodePortAddresses(p.opts.Config, corev1.IPv4Protocol, p.opts.NodeIPs)
	if err != nil || !nodePorts.RouteLocalnet() {
		return err
	}
	if err := os.WriteFile(routeLocalnetSysctl, []byte("1\n"), 0); err != nil {
		return fmt.Errorf("enable route_localnet for NodePorts on loopback: %w", err)
	}
	return nil
}
