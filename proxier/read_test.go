package proxier

import (
	"bytes"
	"fmt"
	"os/exec"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/proxier/iptables"
	"synclab/proxier/iptables/rule"
)

// Reading chains one by one returns the same rules as reading them with the whole table.
func TestReadWhole(t *testing.T) {
	for _, variant := range []iptables.Variant{iptables.Legacy, iptables.Nft} {
		t.Run(string(variant), func(t *testing.T) {
			netns.Fresh(t)
			path, err := iptables.FindBinary(iptables.Binary(variant, corev1.IPv4Protocol, "restore"))
			if err != nil {
				t.Skip(err)
			}
			const chains = 40
			var names []string
			input := bytes.NewBufferString("*nat\n")
			for i := range chains {
				names = append(names, fmt.Sprintf("KUBE-TREE-%d", i))
				fmt.Fprintf(input, ":%s - [0:0]\n", names[i])
			}
			for i, name := range names {
				fmt.Fprintf(input, "-A %s -d 10.0.0.%d/32 -p tcp -m tcp --dport 80 -j ACCEPT\n-A %s -j RETURN\n", name, i, name)
			}
			cmd := exec.Command(path)
			cmd.Stdin = bytes.NewBufferString(input.String() + "COMMIT\n")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			tables := iptables.Installed{Variant: variant, Family: corev1.IPv4Protocol}
			for _, n := range []int{1, 2, 10, chains} {
				want := map[string][]rule.Rule{}
				for _, name := range names[:n] {
					rules, err := tables.Rules(iptables.NAT, name)
					if err != nil || len(rules) != 1 || len(rules[name]) != 2 {
						t.Fatalf("%s: %v, %v", name, rules, err)
					}
					want[name] = rules[name]
				}
				if got, err := tables.Rules(iptables.NAT, names[:n]...); err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("%d chains: %v, %v; want %v", n, got, err, want)
				}
			}
		})
	}
}
