package nftables

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"synclab/bench/lab/netns"
)

// Other programs on the host, such as firewalls, use the nft command, which reads all rules of all tables. It must be
// able to read and print these.
func TestNftCommand(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	path, err := exec.LookPath("nft")
	if err != nil {
		t.Skip("no nft command")
	}
	lists := [][]string{{"list", "tables"}, {"list", "ruleset"}, {"-a", "-n", "list", "ruleset"}, {"-j", "list", "ruleset"}, {"-j", "-a", "-n", "list", "ruleset"}}
	for _, family := range []string{"ip", "ip6"} {
		lists = append(lists, []string{"list", "table", family, "synclab"}, []string{"list", "chain", family, "synclab", baseChains[0].name})
		for s := range sets {
			lists = append(lists, []string{"list", map[bool]string{true: "map", false: "set"}[len(specs[s].value) > 0], family, "synclab", s.String()})
		}
	}
	const foreign = "table inet firewall {\n\tchain input {\n\t\ttype filter hook input priority 0; policy accept;\n\t\ttcp dport { 22, 80 } accept\n\t}\n}\n"
	all := map[kind]bool{}
	for seed := range 4 {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			netns.Fresh(t)
			for _, family := range bothFamilies {
				fill(t, newCluster(uint64(seed), family), all)
			}
			run := func(input string, args ...string) string {
				t.Helper()
				cmd := exec.Command(path, args...)
				cmd.Stdin = strings.NewReader(input)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("nft %s: %v: … %s", strings.Join(args, " "), err, out[max(0, len(out)-2000):])
				}
				if strings.Contains(string(out), "rror: ") {
					t.Fatalf("nft %s complains: %.2000s", strings.Join(args, " "), out)
				}
				return string(out)
			}
			for _, args := range lists {
				run("", args...)
			}
			run(foreign, "-f", "-")
			if out := run("", "list", "ruleset"); !strings.Contains(out, "table inet firewall") || !strings.Contains(out, "table ip6 synclab") {
				t.Errorf("not all tables are printed: %.500s", out)
			}
			run("", "delete", "table", "inet", "firewall")
		})
	}
	if len(all) != len(kindNames)-1 {
		t.Errorf("kinds of classes that were printed: %v", all)
	}
}

// fill writes a table of one family with a remembered client, and records the kinds of classes in it.
func fill(t *testing.T, c *cluster, kinds map[kind]bool) {
	b := another(t, c.settings())
	for range 60 {
		c.step()
	}
	c.take()
	mustSync(t, b, true, c.plan.Ports())
	for range 20 {
		c.step()
	}
	b.Update(c.take())
	mustSync(t, b, false, c.plan.Ports())
	id, target := uint64(1), c.mustAddr(netPods, 1)
	b.encoder.addTimed(setAffinity, append64(appendAddr(nil, c.mustAddr(netOutside, 1)), id),
		appendPort(appendAddr(appendWord(nil, 0), target), 8080), time.Minute, time.Minute)
	if err := b.encoder.commit(); err != nil {
		t.Fatal(err)
	}
	for class := range b.rules.chains {
		kinds[class.kind()] = true
	}
}
