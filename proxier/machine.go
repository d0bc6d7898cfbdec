package proxier

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/proxier/backend"
	"synclab/proxier/config"
	"synclab/proxier/conntrack"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
)

// Machine is what the rules may use of iptables and of the kernel.
type Machine struct {
	// RandomFully: MASQUERADE takes --random-fully (iptables 1.6.2).
	RandomFully bool
	// Liberal: conntrack lets packets outside the window pass (nf_conntrack_tcp_be_liberal), so that nothing needs to
	// drop what it finds invalid.
	Liberal bool
	// Accounting: the kernel has nfacct objects, and ours exist. Should the match be missing after all, the first
	// refused payload switches it off (k/k#142068).
	Accounting bool
	// BPF: the kernel has the match bpf. Should the tool lack it, the first refused payload switches it off.
	BPF bool
}

func (m Machine) apply(s *backend.Settings) {
	s.RandomFully, s.DropInvalid, s.Accounting, s.BPF = m.RandomFully, !m.Liberal, m.Accounting, m.BPF
}

// liberalSysctl is per network namespace; the file is not there before conntrack is.
const liberalSysctl = "/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal"

// routeLocalnetSysctl lets packets with loopback addresses leave lo, which NodePorts on 127.0.0.1 need.
const routeLocalnetSysctl = "/proc/sys/net/ipv4/conf/all/route_localnet"

// ExamineMachine asks iptables and the kernel of the namespace that the calling thread is in, and makes the nfacct
// objects there. Without a variant, for backend nftables, no tool is asked: nf_tables masquerades with random ports
// wherever it is.
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

// prepareNode makes the kernel's settings that the configuration asks for.
func (p *Proxier) prepareNode() error {
	if !p.opts.Sysctls {
		return nil
	}
	if _, err := conntrack.Apply(conntrack.Sysctls(limits(p.opts.Config.Conntrack)), conntrack.ApplyOptions{}); err != nil {
		return fmt.Errorf("conntrack settings: %w", err)
	}
	if !slices.Contains(p.opts.Families, corev1.IPv4Protocol) {
		return nil
	}
	nodePorts, err := config.NodePortAddresses(p.opts.Config, corev1.IPv4Protocol, p.opts.NodeIPs)
	if err != nil || !nodePorts.RouteLocalnet() {
		return err
	}
	if err := os.WriteFile(routeLocalnetSysctl, []byte("1\n"), 0); err != nil {
		return fmt.Errorf("node ports on loopback: %w", err)
	}
	return nil
}

func limits(c v1alpha1.KubeProxyConntrackConfiguration) conntrack.Limits {
	number := func(n *int32) int {
		if n == nil {
			return 0
		}
		return int(*n)
	}
	l := conntrack.Limits{
		MaxPerCore: number(c.MaxPerCore), Min: number(c.Min), Cores: runtime.NumCPU(), TCPBeLiberal: c.TCPBeLiberal,
		UDP: c.UDPTimeout.Duration, UDPStream: c.UDPStreamTimeout.Duration,
	}
	if t := c.TCPEstablishedTimeout; t != nil {
		l.TCPEstablished = t.Duration
	}
	if t := c.TCPCloseWaitTimeout; t != nil {
		l.TCPCloseWait = t.Duration
	}
	return l
}
