package reports

import (
	"testing"

	"synclab/reports/sections"
)

// The sentence covers a whole full sync, and names no part that is unknown or did not run.
func TestPhaseSentence(t *testing.T) {
	const legacy, netlink, blog = "synclab/iptables-legacy", "synclab/nftables", "kube-proxy/nftables"
	for _, test := range []struct {
		name   string
		phases []sections.Phases
		want   string
	}{
		{"a tool", []sections.Phases{{Series: legacy, Plan: 0.06, Encode: 0.04, ToolUser: 0.5, ToolSys: 0.25, Rest: 0.15, Total: 1}},
			"Of the time of a full sync 50 % goes to iptables-restore, 25 % to the kernel, 10 % to the proxier itself and 15 % to the rest; " +
				"the rest is starting tools, waiting and bookkeeping."},
		{"too short for ticks", []sections.Phases{{Series: legacy, Plan: 0.004, Encode: 0.001, Jumps: 0.01, ToolSys: 0.007, Rest: 0.018, Total: 0.04}},
			"Of the time of a full sync 18 % goes to iptables-restore and the kernel together (too short for the kernel's clock to separate them), " +
				"12 % to the proxier itself, 25 % to checking its base chains and jumps and 45 % to the rest; the rest is starting tools, waiting and bookkeeping."},
		{"no tool", []sections.Phases{{Series: netlink, Plan: 0.001, Encode: 0.001, ToolSys: 0.008, Total: 0.01}},
			"Of the time of a full sync 80 % goes to the kernel and 20 % to the proxier itself."},
		{"between system calls", []sections.Phases{{Series: netlink, Encode: 0.25, ToolUser: 0.25, ToolSys: 0.5, Total: 1}},
			"Of the time of a full sync 50 % goes to the kernel, 25 % to its own thread between system calls and 25 % to the proxier itself."},
		{"side by side", []sections.Phases{{Series: blog, ToolUser: 0.6, ToolSys: 0.1, Rest: 0.3, Total: 1, OwnUntold: true}, {Series: netlink, Plan: 0.5, ToolSys: 0.5, Total: 1}},
			"Of the time of a full sync with kube-proxy/nftables 60 % goes to nft, 10 % to the kernel and 30 % to the rest; " +
				"with synclab/nftables 50 % goes to the kernel and 50 % to the proxier itself; " +
				"the rest is the proxier's own work where it reports none, starting tools, waiting and bookkeeping."},
	} {
		s := &sections.Summary{Phases: test.phases}
		var largest []sections.KeyFigures
		for i := range s.Phases {
			s.Phases[i].Kind, s.Phases[i].Tool = "full", sections.ToolOf(s.Phases[i].Series)
			largest = append(largest, sections.KeyFigures{Series: s.Phases[i].Series})
		}
		if got := sections.PhaseSentence(s, largest); len(got) != 1 || got[0] != test.want {
			t.Errorf("%s:\n%q, want\n%q", test.name, got, test.want)
		}
	}
}
