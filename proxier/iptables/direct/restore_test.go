package direct

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/iptables"
	"synclab/proxier/kernel/xtables"
)

// steps are payloads as a proxier has them: everything, one Service's endpoints, fewer Services, none.
func steps(c *cluster) []string {
	gone := func(services ...int) (text string) {
		for _, s := range services {
			service, endpoints := c.names(s)
			for _, chain := range append([]string{service}, endpoints...) {
				text += ":" + chain + " - [0:0]\n"
			}
		}
		for line := range strings.Lines(text) {
			text += "-X " + line[1:strings.IndexByte(line, ' ')] + "\n"
		}
		return text
	}
	without := func(payload, gone string) string { return strings.Replace(payload, "COMMIT\n", gone+"COMMIT\n", 1) }
	return []string{
		c.payload(12, upTo(12), 0), c.payload(12, []int{3}, 1), c.payload(12, []int{11, 0}, 2), c.payload(12, upTo(12), 0),
		without(c.payload(9, nil, 0), gone(9, 10, 11)), c.payload(10, []int{9}, 0), without(c.payload(0, nil, 0), gone(upTo(10)...)),
		"*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n", "*nat\nCOMMIT\n*filter\nCOMMIT\n",
	}
}

// Chains that stay, change, come and go, in the order of their names and of a foreigner's: to the byte as the tool does.
func TestStepsEqualTool(t *testing.T) {
	for _, family := range families {
		t.Run(string(family), func(t *testing.T) { sameAsTool(t, family, foreign(family), steps(&cluster{family, 3})...) })
	}
}

// foreign rules count what goes to port 9 on the loopback device.
func foreign(family corev1.IPFamily) string {
	return strings.ReplaceAll(`*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [7:777]
:OUTPUT ACCEPT [0:0]
:A-FIRST - [0:0]
:KUBE-SEP-7-X - [0:0]
:ZZ - [0:0]
-A INPUT -d LO -p udp -m udp --dport 9 -j ZZ
-A OUTPUT -d LO -p udp -m udp --dport 9 -j A-FIRST
-A A-FIRST -j KUBE-SEP-7-X
-A KUBE-SEP-7-X -m length --length 0:100
-A KUBE-SEP-7-X -g ZZ
-A ZZ
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUBE-SEP-7-X - [0:0]
-A OUTPUT -d LO -p udp -m udp --dport 9 -j KUBE-SEP-7-X
-A OUTPUT -o lo
-A KUBE-SEP-7-X
COMMIT
`, "LO", loopback(family))
}

func loopback(family corev1.IPFamily) string {
	if family == corev1.IPv6Protocol {
		return "::1"
	}
	return "127.0.0.1"
}

// send sends packets to port 9 of the loopback device, each from a port of its own.
func send(t *testing.T, family corev1.IPFamily, packets int) {
	t.Helper()
	for i := range packets {
		conn, err := net.Dial("udp", net.JoinHostPort(loopback(family), "9"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(make([]byte, 10+i)); err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
}

// foreignCounts are the policies and the rules that are not the proxier's, with their counters.
func foreignCounts(t *testing.T, family corev1.IPFamily) []string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(saved(t, family, "-c")) {
		if !strings.Contains(line, "KUBE-S") && !strings.Contains(line, "KUBE-MARK") || strings.Contains(line, "KUBE-SEP-7-X") {
			lines = append(lines, line)
		}
	}
	return lines
}

// What rules and policies that stay have counted is there after a replacement, to the packet and the byte, and they go
// on counting; so is what chains of the proxier have counted that a payload does not name.
func TestCountersStay(t *testing.T) {
	for _, family := range families {
		t.Run(string(family), func(t *testing.T) {
			enter(t, family)
			mustRun(t, family, "restore", foreign(family), "--counters")
			c := &cluster{family, 3}
			counting := "-I OUTPUT 1 -j KUBE-SEP-COUNT\n"
			all := append([]string{
				"*nat\n:KUBE-SEP-COUNT - [0:0]\n" + counting + "-A KUBE-SEP-COUNT -p udp\nCOMMIT\n" +
					"*filter\n:KUBE-SEP-COUNT - [0:0]\n" + counting + "-A KUBE-SEP-COUNT -p udp\nCOMMIT\n",
			}, steps(c)...)
			sent := 0
			for i, payload := range all {
				send(t, family, 3)
				sent += 3
				before := foreignCounts(t, family)
				if err := restoreDirectly(t, family, payload); err != nil {
					t.Fatal(err)
				}
				after := foreignCounts(t, family)
				if i == 0 { // the jump to the counting chain is new
					after = slices.DeleteFunc(after, func(line string) bool { return strings.Contains(line, "KUBE-SEP-COUNT") })
				}
				if diff := cmp.Diff(before, after); diff != "" {
					t.Fatalf("payload %d (-before +after):\n%s", i, diff)
				}
				if want := fmt.Sprintf("[%d:", sent); !strings.Contains(strings.Join(after, ""), want) {
					t.Fatalf("payload %d: no rule counted %d packets:\n%s", i, sent, strings.Join(after, ""))
				}
				if own := saved(t, family, "-c"); i > 0 && !strings.Contains(own, fmt.Sprintf("[%d:%d] -A KUBE-SEP-COUNT", sent-3, udpBytes(family, sent-3))) {
					t.Fatalf("payload %d: a chain that no payload named has not counted %d packets:\n%s", i, sent-3, own)
				}
			}
		})
	}
}

// udpBytes of so many packets of send, three at a time.
func udpBytes(family corev1.IPFamily, packets int) int {
	header := 28
	if family == corev1.IPv6Protocol {
		header = 48
	}
	return packets*header + packets/3*(10+11+12)
}

// What the kernel refuses is the COMMIT's fault, and leaves its table as it was; tables before it are written.
func TestKernelRefuses(t *testing.T) {
	for name, lines := range map[string]string{
		"wrong hook":  "-I PREROUTING 1 -j KUBE-A\n-A KUBE-A -j MASQUERADE\n",
		"wrong table": "-A KUBE-A -j REJECT\n",
		"loop":        "-I OUTPUT 1 -j KUBE-A\n-A KUBE-A -j KUBE-B\n-A KUBE-B -j KUBE-A\n",
		"no object":   "-A KUBE-A -m nfacct --nfacct-name nobody-made-it\n",
	} {
		for _, family := range families {
			t.Run(strings.ReplaceAll(name, " ", "-")+"/"+string(family), func(t *testing.T) {
				enter(t, family)
				mustRun(t, family, "restore", foreign(family))
				before := bytesOf(t, family, "nat")
				err := restoreDirectly(t, family, "*filter\n:KUBE-A - [0:0]\nCOMMIT\n*nat\n:KUBE-A - [0:0]\n:KUBE-B - [0:0]\n"+lines+"COMMIT\n")
				var line *lineError
				if want := 7 + strings.Count(lines, "\n"); !errors.As(err, &line) || int(line.line) != want {
					t.Errorf("%v; want line %d to blame", err, want)
				}
				if !bytes.Equal(before, bytesOf(t, family, "nat")) {
					t.Errorf("nat is another:\n%s", saved(t, family, "-t", "nat"))
				}
				if !strings.Contains(saved(t, family, "-t", "filter"), ":KUBE-A ") {
					t.Error("filter was not written")
				}
			})
		}
	}
}

// Somebody else's changes are kept as long as they are made under the lock; and whoever takes none, delays us only.
func TestConcurrentChanges(t *testing.T) {
	for name, lock := range map[string]string{"locked": "", "unlocked": filepath.Join(t.TempDir(), "another.lock")} {
		t.Run(name, func(t *testing.T) {
			enter(t, corev1.IPv4Protocol)
			mustRun(t, corev1.IPv4Protocol, "", "", "-t", "nat", "-N", "FOREIGN")
			path, err := iptables.FindBinary("iptables-legacy")
			if err != nil {
				t.Skip(err)
			}
			const rules = 60
			// Without the lock, the tool may find the table changed beneath it as well, and gives up that rule.
			other := exec.Command("sh", "-c", fmt.Sprintf(`i=0; while [ $i -lt %d ]; do %s -w -t nat -A FOREIGN -m mark --mark $i || test -n "$UNLOCKED" || exit 1; i=$((i+1)); done`, rules, path))
			if lock != "" {
				other.Env = append(os.Environ(), "XTABLES_LOCKFILE="+lock, "UNLOCKED=1")
			}
			if err := other.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- other.Wait() }()
			c := &cluster{corev1.IPv4Protocol, 3}
			payloads := steps(c)[:6]
			for i := 0; ; i++ {
				if err := restoreDirectly(t, c.family, payloads[i%len(payloads)]); err != nil {
					t.Fatalf("restore %d: %v", i, err)
				}
				select {
				case err := <-ended:
					if err != nil {
						t.Fatal(err)
					}
				default:
					continue
				}
				break
			}
			now := saved(t, c.family, "-t", "nat")
			for i := range rules {
				if want := fmt.Sprintf("-A FOREIGN -m mark --mark 0x%x\n", i); lock == "" && !strings.Contains(now, want) {
					t.Fatalf("lost: %s", want)
				}
			}
		})
	}
}

// A held lock is waited for, as long as the options say, or until the context ends.
func TestLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "lock")
		hold := func() (release func()) {
			unlock, err := lock(t.Context(), path, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			return unlock
		}
		release := hold()
		start := time.Now()
		if _, err := lock(t.Context(), path, 3*time.Second); !errors.Is(err, errLocked) || !strings.Contains(err.Error(), path) {
			t.Errorf("held all the time: %v", err)
		}
		if waited := time.Since(start); waited != 3*time.Second {
			t.Errorf("waited %v", waited)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := lock(ctx, path, time.Hour); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: %v", err)
		}
		start = time.Now()
		time.AfterFunc(time.Second, release)
		unlock, err := lock(t.Context(), path, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(start); waited < time.Second || waited > time.Second+2*lockInterval {
			t.Errorf("released after 1s, had after %v", waited)
		}
		unlock()
		hold()()
		if _, err := lock(t.Context(), filepath.Join(path, "none"), time.Hour); !errors.Is(err, unix.ENOTDIR) {
			t.Errorf("no such folder: %v", err)
		}
	})
}

// A table whose chains are not in the order of their names comes into it; all its jumps still lead where they did.
func TestUnordered(t *testing.T) {
	for _, family := range families {
		b, err := newBlock(0)
		if err != nil {
			t.Fatal(err)
		}
		defer b.close()
		empty := emptyTable(t, family)
		end := empty.Wire.HeadSize()
		at, err := b.take(len(empty.Entries) - end)
		if err != nil {
			t.Fatal(err)
		}
		copy(b.entries[at:], empty.Entries[:len(empty.Entries)-end])
		names, starts := []string{"ZZ", "B", "KUBE-SERVICES", "A"}, map[string]uint32{}
		e := encoder{wire: empty.Wire, revisions: newest, block: b, entries: empty.Info.NumEntries - 1}
		e.number = func(name []byte) (uint32, bool) {
			i := slices.Index(names, string(name))
			return uint32(i), i >= 0
		}
		for i, name := range names {
			check := func(err error) {
				if err != nil {
					t.Fatal(err)
				}
			}
			check(e.head(name))
			starts[name] = uint32(b.size)
			check(e.rule([]byte("-m mark --mark " + fmt.Sprint(i))))
			check(e.rule([]byte("-j " + names[(i+1)%len(names)])))
			check(e.foot())
		}
		if err := e.head("ERROR"); err != nil {
			t.Fatal(err)
		}
		for _, jump := range e.jumps {
			b.put32(int(jump), starts[names[b.get32(int(jump))]])
		}
		table := &xtables.Table{Wire: empty.Wire, Info: empty.Info, Entries: b.entries[:b.size]}
		table.Info.NumEntries, table.Info.Size = e.entries, uint32(b.size)
		made := spliced(t, table, []byte("*nat\n:KUBE-SERVICES - [0:0]\n:C - [0:0]\n-A KUBE-SERVICES -j C\n-I B 1 -j A\n-A B -j ZZ\nCOMMIT\n"))
		want := []string{
			"-A A -m mark --mark 0x3", "-A A -j ZZ", "-A B -j A", "-A B -m mark --mark 0x1", "-A B -j KUBE-SERVICES", "-A B -j ZZ",
			"-A KUBE-SERVICES -j C", "-A ZZ -m mark --mark 0x0", "-A ZZ -j B",
		}
		if diff := cmp.Diff(want, rulesOf(t, made)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", family, diff)
		}
	}
}

// Tables larger than the room in front of them are written over while they are read: where rules are added, the new one
// comes close to the old one; where they go, it stays behind.
func TestLargeEqualsTool(t *testing.T) {
	if testing.Short() {
		t.Skip("large tables")
	}
	c := &cluster{corev1.IPv4Protocol, 3}
	const services = 1500
	var more strings.Builder
	more.WriteString("*nat\n:AA - [0:0]\n")
	for i := range 2000 {
		fmt.Fprintf(&more, "-A AA -m comment --comment x -m mark --mark %d\n", i)
	}
	more.WriteString("COMMIT\n")
	sameAsTool(t, c.family, foreign(c.family),
		c.payload(services, upTo(services), 0), c.payload(services, []int{700, 3}, 1), more.String(), c.payload(services, []int{5}, 2),
		"*nat\n:AA - [0:0]\n-X AA\nCOMMIT\n", c.payload(services, upTo(services), 1), "*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n")
}

// A payload whose rules are longer than any proxier's gets more room.
func TestMoreRoom(t *testing.T) {
	enter(t, corev1.IPv6Protocol)
	const rules = 60000
	text := "*nat\n:A - [0:0]\n" + strings.Repeat("-A A -m comment --comment x\n", rules) + "COMMIT\n"
	if err := restoreDirectly(t, corev1.IPv6Protocol, text); err != nil {
		t.Fatal(err)
	}
	s := &script{segments: [][]byte{[]byte(text)}}
	got, err := open(t, corev1.IPv6Protocol).Rules(iptables.NAT)
	if err != nil || len(got) != rules || len(bytesOf(t, corev1.IPv6Protocol, "nat")) <= s.room() {
		t.Errorf("%d rules, %v; room for %d bytes was asked for", len(got), err, s.room())
	}
}
