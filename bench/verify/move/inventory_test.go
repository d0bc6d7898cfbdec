package move

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/subject"
)

// What stays counts unless the new subject uses it.
func TestLeft(t *testing.T) {
	const v4 = corev1.IPv4Protocol
	before := Inventory{
		{Chains, "iptables-nft nat", v4, "KUBE-SERVICES"}:        3,
		{Chains, "iptables-nft nat", v4, "KUBE-SVC-A"}:           2,
		{Chains, "iptables-nft nat", v4, "KUBE-NODE-PORT"}:       1,
		{Chains, "iptables-legacy nat", v4, "KUBE-SERVICES"}:     1,
		{Chains, "iptables-legacy nat", v4, "KUBE-PORTALS-HOST"}: 1,
		{Tables, "nf_tables", v4, "kube-proxy"}:                  9,
		{Sets, "ipset", "", "KUBE-CLUSTER-IP"}:                   0,
		{Servers, "IPVS", v4, "6 10.96.0.1:443"}:                 0,
		{Devices, "type dummy", "", ipvsDevice}:                  0,
		{Addresses, ipvsDevice, v4, "10.96.0.1"}:                 0,
		{Flows, "TCP", v4, "a b"}:                                0,
		{Flows, "TCP", v4, "gone"}:                               0,
	}
	after := maps.Clone(before)
	delete(after, Thing{Flows, "TCP", v4, "gone"})
	after[Thing{Chains, "iptables-nft nat", v4, "KUBE-SVC-NEW"}] = 2 // made by the new subject
	ipvsThings := map[string]int{"sets of ipset": 1, "virtual servers of IPVS": 1, "devices of type dummy": 1, "addresses of kube-ipvs0": 1}
	both := func(maps ...map[string]int) map[string]int {
		all := map[string]int{"conntrack entries of TCP": 1}
		for _, m := range maps {
			for what, n := range m {
				all[what] += n
			}
		}
		return all
	}
	one := map[string]int{"chains of iptables-legacy nat": 1, "rules of iptables-legacy nat": 1}
	legacy := map[string]int{"chains of iptables-legacy nat": 2, "rules of iptables-legacy nat": 2}
	table := map[string]int{"tables of nf_tables": 1, "rules of nf_tables": 9}
	for name, want := range map[string]map[string]int{
		"kube-proxy/nftables":        both(ipvsThings, legacy, map[string]int{"chains of iptables-nft nat": 3, "rules of iptables-nft nat": 6}),
		"synclab/nftables":           both(ipvsThings, legacy, table, map[string]int{"chains of iptables-nft nat": 3, "rules of iptables-nft nat": 6}),
		"kube-proxy/iptables-nft":    both(ipvsThings, legacy, table, map[string]int{"chains of iptables-nft nat": 1, "rules of iptables-nft nat": 1}),
		"synclab/userspace":          both(ipvsThings, one, table, map[string]int{"chains of iptables-nft nat": 3, "rules of iptables-nft nat": 6}),
		"kube-proxy/iptables-legacy": both(ipvsThings, one, table, map[string]int{"chains of iptables-nft nat": 3, "rules of iptables-nft nat": 6}),
		"kube-proxy/ipvs":            both(table, one, map[string]int{"chains of iptables-nft nat": 1, "rules of iptables-nft nat": 2}),
		"exec:other=command":         both(ipvsThings, legacy, table, map[string]int{"chains of iptables-nft nat": 3, "rules of iptables-nft nat": 6}),
	} {
		to, err := subject.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for _, left := range Left(before, after, to) {
			for what, n := range left {
				got[what] += n
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}
