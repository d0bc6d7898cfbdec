package iptables

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Left: rules as the proxier writes them. Right: the same rules as iptables-save 1.8.9 prints them.
func TestCanonical(t *testing.T) {
	for _, c := range []struct{ name, written, saved string }{
		{"no match", "-A KUBE-EXT-X -j KUBE-SVC-X", "-A KUBE-EXT-X -j KUBE-SVC-X"},
		{"dispatch",
			`-A KUBE-SERVICES -m comment --comment "ns/svc:p cluster IP" -m tcp -p tcp -d 10.96.0.1 --dport 80 -j KUBE-SVC-X`,
			`-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m comment --comment "ns/svc:p cluster IP" -m tcp --dport 80 -j KUBE-SVC-X`},
		{"comment of one word",
			`-A KUBE-NODEPORTS -m comment --comment ns/svc -m udp -p udp --dport 53 -j KUBE-EXT-X`,
			`-A KUBE-NODEPORTS -p udp -m comment --comment "ns/svc" -m udp --dport 53 -j KUBE-EXT-X`},
		{"address type", `-A KUBE-EXTERNAL-SERVICES -m addrtype --dst-type LOCAL -m sctp -p sctp --dport 9 -j DROP`,
			`-A KUBE-EXTERNAL-SERVICES -p sctp -m addrtype --dst-type LOCAL -m sctp --dport 9 -j DROP`},
		{"negated source", `-A KUBE-SVC-X -m tcp -p tcp -d 10.96.0.1 --dport 80 ! -s 10.128.0.0/9 -j KUBE-MARK-MASQ`,
			`-A KUBE-SVC-X ! -s 10.128.0.0/9 -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ`},
		{"host bits", `-A KUBE-FW-X -s 10.1.2.3/16 -j KUBE-EXT-X`, `-A KUBE-FW-X -s 10.1.0.0/16 -j KUBE-EXT-X`},
		{"every address", `-A KUBE-FW-X -s 0.0.0.0/0 -j KUBE-EXT-X`, `-A KUBE-FW-X -j KUBE-EXT-X`},
		{"no address", `-A KUBE-FW-X ! -s 0.0.0.0/0 -j KUBE-EXT-X`, `-A KUBE-FW-X ! -s 0.0.0.0/0 -j KUBE-EXT-X`},
		{"interface", `-A KUBE-SVC-X ! -i cali+ -j KUBE-MARK-MASQ`, `-A KUBE-SVC-X ! -i cali+ -j KUBE-MARK-MASQ`},
		{"negated option", `-A KUBE-FIREWALL -d 127.0.0.0/8 ! -s 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP`,
			`-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP`},
		{"mark match", `-A KUBE-FORWARD -m mark --mark 0x004000/0x004000 -j ACCEPT`, `-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT`},
		{"negated mark", `-A KUBE-POSTROUTING -m mark ! --mark 0x004000/0x004000 -j RETURN`,
			`-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN`},
		{"or mark", `-A KUBE-MARK-MASQ -j MARK --or-mark 0x004000`, `-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000`},
		{"xor mark", `-A KUBE-POSTROUTING -j MARK --xor-mark 0x004000`, `-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0`},
		{"program", `-A KUBE-POSTROUTING -m conntrack --ctstate DNAT -m bpf --bytecode "1,6 0 0 1" -j MASQUERADE`,
			`-A KUBE-POSTROUTING -m conntrack --ctstate DNAT -m bpf --bytecode "1,6 0 0 1" -j MASQUERADE`},
		{"half", `-A KUBE-SVC-X -m statistic --mode random --probability 0.5000000000 -j KUBE-SEP-X`,
			`-A KUBE-SVC-X -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-X`},
		{"third", `-A KUBE-SVC-X -m statistic --mode random --probability 0.3333333333 -j KUBE-SEP-X`,
			`-A KUBE-SVC-X -m statistic --mode random --probability 0.33333333349 -j KUBE-SEP-X`},
		{"recent, check", `-A KUBE-SVC-X -m recent --name KUBE-SEP-X --rcheck --seconds 10800 --reap -j KUBE-SEP-X`,
			`-A KUBE-SVC-X -m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-X --mask 255.255.255.255 --rsource -j KUBE-SEP-X`},
		{"recent, set", `-A KUBE-SEP-X -m recent --name KUBE-SEP-X --set -m tcp -p tcp -j DNAT --to-destination 10.1.0.1:80`,
			`-A KUBE-SEP-X -p tcp -m recent --set --name KUBE-SEP-X --mask 255.255.255.255 --rsource -m tcp -j DNAT --to-destination 10.1.0.1:80`},
		{"reject", `-A KUBE-SERVICES -m tcp -p tcp -d 10.96.0.1 --dport 80 -j REJECT`,
			`-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable`},
		{"no target", `-A KUBE-FW-X -m comment --comment "other traffic"`, `-A KUBE-FW-X -m comment --comment "other traffic"`},
		{"random", `-A KUBE-POSTROUTING -j MASQUERADE --random-fully`, `-A KUBE-POSTROUTING -j MASQUERADE --random-fully`},
		{"not a rule", `:KUBE-SVC-X - [0:0]`, `:KUBE-SVC-X - [0:0]`},
		{"unbalanced quote", `-A X -m comment --comment "a`, `-A X -m comment --comment "a`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Canonical(c.written, corev1.IPv4Protocol); got != c.saved {
				t.Errorf("got  %s\nwant %s", got, c.saved)
			}
			if got := Canonical(c.saved, corev1.IPv4Protocol); got != c.saved {
				t.Errorf("what iptables-save prints is changed: %s", got)
			}
		})
	}
}

func TestCanonicalIPv6(t *testing.T) {
	for written, saved := range map[string]string{
		`-A S -m tcp -p tcp -d fd00:96::1 --dport 80 -j REJECT`: `-A S -d fd00:96::1/128 -p tcp -m tcp --dport 80 -j REJECT --reject-with icmp6-port-unreachable`,
		`-A S -m recent --name X --set -j ACCEPT`:               `-A S -m recent --set --name X --mask ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff --rsource -j ACCEPT`,
		`-A S -s fd00:0:0::1 -j KUBE-MARK-MASQ`:                 `-A S -s fd00::1/128 -j KUBE-MARK-MASQ`,
		`-A S -j DNAT --to-destination [fd00::1]:80`:            `-A S -j DNAT --to-destination [fd00::1]:80`,
	} {
		if got := Canonical(written, corev1.IPv6Protocol); got != saved {
			t.Errorf("got  %s\nwant %s", got, saved)
		}
	}
}
