package proxier

import (
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/iptables"
)

// Machine is what the rules may use of iptables and of the kernel.
type Machine struct {
	// RandomFully: MASQUERADE takes --random-fully (iptables 1.6.2).
	RandomFully bool
	// Liberal: conntrack lets packets outside the window pass (nf_conntrack_tcp_be_liberal), so that nothing needs to
	// drop what it finds invalid.
	Liberal bool
	// Accounting: the nfacct match works and its objects exist.
	Accounting bool
}

func (m Machine) apply(s *iptables.Settings) {
	s.RandomFully, s.DropInvalid, s.Accounting = m.RandomFully, !m.Liberal, m.Accounting
}

// liberalSysctl is per network namespace; the file is not there before conntrack is.
const liberalSysctl = "/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal"

// ExamineMachine asks iptables and the kernel of the namespace that the process is in.
func ExamineMachine(variant iptables.Variant) (Machine, error) {
	jumps, err := iptables.NewJumps(variant, corev1.IPv4Protocol)
	if err != nil {
		return Machine{}, err
	}
	liberal, _ := os.ReadFile(liberalSysctl)
	return Machine{RandomFully: jumps.RandomFully(), Liberal: strings.TrimSpace(string(liberal)) == "1"}, nil
}
