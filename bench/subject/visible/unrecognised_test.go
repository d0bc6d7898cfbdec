package visible

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/bench/mirror"
	"synclab/proxier/iptables"
	"synclab/sim"
)

// An unreadable rule fails the Watcher if it stays through other commits. A rule that disappears, or whose port has its
// desired state, does not.
func TestUnrecognisedRuleFails(t *testing.T) {
	b := newBed(t).showing()
	var failed error
	b.opts.Failed = func(err error) { failed = err }
	until := func(from, to int) int { // steps of 100 ms, each with an unrelated commit
		for ms := from; ms <= to; ms += 100 {
			b.at(ms).commit().step()
			if failed != nil {
				return ms
			}
		}
		return 0
	}
	const port = "IPv4 ns/a:http"
	b.kernel.unreadable = map[string]string{port: "chain x: y"}
	if at := until(100, 20000); at != 0 {
		t.Fatalf("a port without awaited changes failed after %d ms: %v", at, failed)
	}
	b.change(sim.Update, slice("a", "2"))
	if at := until(20000, 25000); at != 0 {
		t.Fatalf("failed after %d ms: %v", at, failed)
	}
	b.kernel.unreadable[port] = "chain x: z"
	if at := until(25100, 29000); at != 0 {
		t.Fatalf("another rule failed after %d ms: %v", at, failed)
	}
	delete(b.kernel.unreadable, port)
	until(29100, 31000)
	b.kernel.unreadable[port] = "chain x: z"
	at := until(31100, 60000)
	var u *Unrecognised
	if at < 36000 || at > 38000 || !errors.As(failed, &u) || u.Rule != "chain x: z" || !strings.Contains(u.Error(), "ns/a:http (TCP, IPv4)") {
		t.Fatalf("failed at %d ms: %v", at, failed)
	}
	if err := b.Wait(t.Context()); err != failed {
		t.Errorf("Wait: %v", err)
	}
}

// The ruleset readers describe rules that they cannot read, but not rules that are only missing.
func TestUnrecognisedRules(t *testing.T) {
	own := iptables.ChainsOf(shop("plain"))
	nat := func(rules string) string {
		return "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n:ELSEWHERE - [0:0]\n:" + own.Cluster + " - [0:0]\n" + rules + "COMMIT\n"
	}
	restore := func(variant iptables.Variant) []string {
		return []string{iptables.Binary(variant, corev1.IPv4Protocol, "restore")}
	}
	const chain = "service-KMAT73PK-shop/plain/tcp/http"
	table := func(services, rules string) string {
		return "table ip kube-proxy {\nchain elsewhere { }\nchain mark-for-masquerade { }\nchain services { }\nchain " + chain + " { " + rules + " }\n" +
			"map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; elements = { " + services + " }; }\n}"
	}
	nft := []string{"nft", "-f", "-"}
	led := "10.96.0.1 . tcp . 80 : goto " + chain
	for _, x := range []struct {
		name, reader string
		command      []string
		rules, want  string
	}{
		{"empty chain", Nftables, nft, table(led, ""), ""},
		{"masquerading alone", Nftables, nft, table(led, "ip saddr != 10.128.0.0/9 mark set mark or 0x4000;"), ""},
		{"masquerading by a chain", Nftables, nft, table(led, "ip saddr != 10.128.0.0/9 jump mark-for-masquerade;"), ""},
		{"another endpoint", Nftables, nft, table(led, "meta l4proto tcp dnat to 10.128.0.9:8080;"), ""},
		{"map", Nftables, nft, table(led, "meta l4proto tcp dnat ip addr . port to numgen random mod 1 map { 0 : 10.128.0.9 . 8080 };"), ""},
		{"redirect", Nftables, nft, table(led, "counter; meta l4proto tcp redirect to :8080;"), "table kube-proxy, chain " + chain + ": meta l4proto == 0x06 0x1f90 redir"},
		{"drop", Nftables, nft, table(led, "drop;"), "table kube-proxy, chain " + chain + ": drop"},
		{"jump", Nftables, nft, table(led, "goto elsewhere;"), "table kube-proxy, chain " + chain + ": goto elsewhere"},
		{"only an address", Nftables, nft, table(led, "dnat to 10.128.0.9;"), "table kube-proxy, chain " + chain + ": 0x0a800009 dnat"},
		{"dispatch", Nftables, nft, table("10.96.0.1 . tcp . 80 : goto elsewhere", ""), "table kube-proxy, map service-ips: TCP 10.96.0.1:80 goes to elsewhere"},
		{"another Service's", Nftables, nft, table("10.96.0.2 . tcp . 80 : goto elsewhere", ""), ""},
		{"empty chain", IptablesLegacy, restore(iptables.Legacy), nat(""), ""},
		{"masquerading alone", IptablesLegacy, restore(iptables.Legacy), nat("-A " + own.Cluster + " -j KUBE-MARK-MASQ\n"), ""},
		{"redirect", IptablesLegacy, restore(iptables.Legacy), nat("-A " + own.Cluster + " -p tcp -m tcp -j REDIRECT --to-ports 8080\n"), "table nat, chain " + own.Cluster + ": -m tcp -j REDIRECT"},
		{"jump", IptablesLegacy, restore(iptables.Legacy), nat("-A " + own.Cluster + " -j ELSEWHERE\n"), "table nat, chain " + own.Cluster + ": -j ELSEWHERE"},
		{"dispatch", IptablesLegacy, restore(iptables.Legacy), nat("-A KUBE-SERVICES -d 10.96.0.1/32 -j ELSEWHERE\n"), "table nat, chain KUBE-SERVICES: -j ELSEWHERE"},
		{"empty chain", IptablesNft, restore(iptables.Nft), nat(""), ""},
		{"redirect", IptablesNft, restore(iptables.Nft), nat("-A " + own.Cluster + " -p tcp -m tcp -j REDIRECT --to-ports 8080\n"), "table nat, chain " + own.Cluster + ": "},
		{"dispatch", IptablesNft, restore(iptables.Nft), nat("-A KUBE-SERVICES -d 10.96.0.1/32 -j ELSEWHERE\n"), "table nat, chain KUBE-SERVICES: "},
	} {
		t.Run(fmt.Sprintf("%s/%s", x.reader, x.name), func(t *testing.T) {
			netns.Fresh(t)
			if _, err := exec.LookPath(x.command[0]); err != nil {
				t.Skip(err)
			}
			cmd := exec.Command(x.command[0], x.command[1:]...)
			cmd.Stdin = strings.NewReader(x.rules)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			w, err := New(Options{RulesetReader: x.reader})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			svc, endpoints := service("plain"), slice("plain", "1")
			svc.Namespace, endpoints.Namespace = "shop", "shop"
			w.Changed(mirror.Change{Op: sim.Add, Object: svc, Due: time.Time{}})
			w.Changed(mirror.Change{Op: sim.Add, Object: endpoints, Due: time.Time{}})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			text := w.Wait(ctx).Error()
			if _, rule, found := strings.Cut(text, "unrecognised rule: "); found != (x.want != "") || !strings.HasPrefix(rule, x.want) {
				t.Errorf("want %q of\n%s", x.want, text)
			}
		})
	}
}
