package proxier

import (
	"errors"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/netns"
	"synclab/bench/seeds"
	"synclab/proxier/iptables"
	"synclab/proxier/iptables/direct"
)

// foreignRules are somebody else's, in all the places where they may stand: with policies, in built-in chains around our
// jumps, in chains whose names come before, among and after ours, with jumps to one another and extensions that the
// proxier knows nothing of.
const foreignRules = `*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:A-FIRST - [0:0]
:KUBE-SEPARATE - [0:0]
:ZZ-LAST - [0:0]
-A INPUT -p tcp -m multiport --dports 22,80:90 -j A-FIRST
-A INPUT -m limit --limit 5/sec -j LOG --log-prefix "seen: "
-A FORWARD -i eth0 -o eth1 -j ZZ-LAST
-A A-FIRST -g KUBE-SEPARATE
-A A-FIRST
-A KUBE-SEPARATE -m mac --mac-source 00:11:22:33:44:55 -j RETURN
-A KUBE-SEPARATE -j ZZ-LAST
-A ZZ-LAST -p tcp -m tcp --tcp-flags SYN,ACK SYN -m length --length 0:1500
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:CNI-HOSTPORT - [0:0]
:KUBE-SEP - [0:0]
:VPN - [0:0]
-A PREROUTING -p tcp -m tcp --dport 8443 -j REDIRECT --to-ports 443
-A POSTROUTING -o eth0 -j VPN
-A CNI-HOSTPORT -j KUBE-SEP
-A KUBE-SEP -m statistic --mode nth --every 3 --packet 0 -j VPN
-A VPN -p udp -m mark --mark 0x7 -j MASQUERADE --to-ports 1024-2048
COMMIT
`

// Given to the kernel without a tool, every payload leaves what it leaves through the tool, to the letter of
// iptables-legacy-save: random clusters, full and partial syncs, among somebody else's rules that come and go.
func TestDirectEqualsTool(t *testing.T) {
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		for _, layout := range iptables.Layouts {
			t.Run(string(family)+"/"+string(layout), func(t *testing.T) {
				s := seeds.Of(t)
				var saves [2][]string
				for way, name := range []string{"tool", "direct"} {
					t.Run(name, func(t *testing.T) {
						saves[way] = savesOf(t, s, family, layout, way == 1)
					})
				}
				if len(saves[0]) != len(saves[1]) {
					t.Fatalf("%d and %d syncs", len(saves[0]), len(saves[1]))
				}
				for i := range saves[0] {
					if diff := cmp.Diff(strings.Split(saves[0][i], "\n"), strings.Split(saves[1][i], "\n")); diff != "" {
						t.Fatalf("after sync %d (-tool +direct):\n%s", i, diff)
					}
				}
			})
		}
	}
}

// savesOf are what iptables-legacy-save prints after each sync of a random cluster.
func savesOf(t *testing.T, seed uint64, family corev1.IPFamily, layout iptables.Layout, direct bool) []string {
	netns.Fresh(t)
	restoreForeign(t, family, foreignRules)
	tables, err := newTables(direct, iptables.RestorerOptions{Variant: iptables.Legacy, Family: family})
	if err != nil {
		t.Skip(err)
	}
	c, meddle := newRandomCluster(seed, family), rand.New(rand.NewPCG(seed, 3))
	e := testEngine(t, family, tables, func(o *Options) { o.Layout = layout })
	var saves []string
	for n := range 300 {
		c.step(e)
		if n%10 != 9 {
			continue
		}
		switch meddle.IntN(8) {
		case 0:
			e.demandFull("test")
		case 1:
			restoreForeign(t, family, "*nat\n:LATE - [0:0]\n-A LATE -p udp -m udp --dport 53 -j RETURN\n-A OUTPUT -j LATE\nCOMMIT\n")
		case 2:
			restoreForeign(t, family, "*nat\n:KUBE-SEP - [0:0]\n-A KUBE-SEP -j VPN\nCOMMIT\n*filter\n:B-SECOND - [0:0]\nCOMMIT\n")
		}
		if err := e.sync(t.Context()); err != nil {
			t.Fatalf("event %d: %v", n, err)
		}
		saves = append(saves, legacySaved(t, family))
	}
	return saves
}

func restoreForeign(t *testing.T, family corev1.IPFamily, text string) {
	t.Helper()
	path, err := iptables.FindBinary(iptables.Binary(iptables.Legacy, family, "restore"))
	if err != nil {
		t.Skip(err)
	}
	cmd := exec.Command(path, "--noflush")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("foreign rules: %v: %s", err, out)
	}
}

// legacySaved is iptables-legacy-save without its remarks, which hold the time.
func legacySaved(t *testing.T, family corev1.IPFamily) string {
	t.Helper()
	path, err := iptables.FindBinary(iptables.Binary(iptables.Legacy, family, "save"))
	if err != nil {
		t.Skip(err)
	}
	out, err := exec.Command(path).Output()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "#") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// A rule that cannot be encoded is its Service port's fault alone: that one is named and left out, everybody else is
// served.
func TestDirectRefuses(t *testing.T) {
	netns.Fresh(t)
	f := newFaulty(t, iptables.Legacy, true, newRandomCluster(seeds.Of(t), corev1.IPv4Protocol))
	f.events(40)
	f.udpService(1, "10.128.1.1", 5353, time.Time{})
	f.udpService(2, "10.128.1.2", 5353, time.Time{})
	long := strings.Repeat("x", 250) // more than a comment may have, with the Service's name
	svc, slice := f.cluster.services[102].DeepCopy(), f.cluster.slices[[2]int{102, 0}].DeepCopy()
	svc.Spec.Ports[0].Name, slice.Ports[0].Name = long, &long
	f.tracker.SetService(svc, f.clock.Now())
	f.tracker.SetSlice(slice, f.clock.Now())
	f.mustSync()
	f.refuses("made-2")
	var failed *iptables.RestoreError
	if err := f.last.Refused[0].Err; !errors.As(err, &failed) || failed.Tool != direct.Tool || failed.Line == 0 || !strings.Contains(err.Error(), "comment") {
		t.Errorf("refused because of %v", err)
	}
	f.comparesWithout(2)
	f.remove(2)
	f.mustSync()
	f.refuses()
	f.converged()
}
