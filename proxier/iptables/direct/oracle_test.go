package direct

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/netns"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
	"synclab/proxier/kernel/xtables"
)

func TestMain(m *testing.M) { os.Exit(netns.TestMain(m)) }

var families = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}

// enter gives the test a namespace with legacy tables, or skips it.
func enter(t testing.TB, family corev1.IPFamily) {
	t.Helper()
	netns.Fresh(t)
	s, err := xtables.Open(family)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Info("nat"); errors.Is(err, unix.ENOPROTOOPT) || errors.Is(err, unix.ENOENT) {
		t.Skipf("no legacy tables in this kernel: %v", err)
	}
}

// runTool runs a tool of iptables-legacy.
func runTool(t testing.TB, family corev1.IPFamily, kind, input string, args ...string) (string, error) {
	t.Helper()
	path, err := iptables.FindBinary(iptables.Binary(iptables.Legacy, family, kind))
	if err != nil {
		t.Skip(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Stdin = strings.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %v: %w: %s", path, args, err, &stderr)
	}
	return string(out), err
}

func mustRun(t testing.TB, family corev1.IPFamily, kind, input string, args ...string) string {
	t.Helper()
	out, err := runTool(t, family, kind, input, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func restoreWithTool(t testing.TB, family corev1.IPFamily, text string) error {
	_, err := runTool(t, family, "restore", text, "-w", "--noflush", "--counters")
	return err
}

func open(t testing.TB, family corev1.IPFamily) *Tables {
	t.Helper()
	tables, err := New(iptables.RestorerOptions{Family: family})
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

// restoreDirectly takes payload after payload of a test through the same Tables.
func restoreDirectly(t testing.TB, family corev1.IPFamily, text string) error {
	_, err := opened(t, family).give(context.Background(), scriptOf(text))
	return err
}

var openedTables sync.Map

func opened(t testing.TB, family corev1.IPFamily) *Tables {
	key := t.Name() + string(family)
	if tables, ok := openedTables.Load(key); ok {
		return tables.(*Tables)
	}
	tables := open(t, family)
	openedTables.Store(key, tables)
	t.Cleanup(func() { openedTables.Delete(key) })
	return tables
}

// saved is what iptables-legacy-save prints, without dates.
func saved(t testing.TB, family corev1.IPFamily, args ...string) string {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(mustRun(t, family, "save", "", args...)) {
		if !strings.HasPrefix(line, "#") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// bytesOf are the entries of a table as the kernel gives them, without what it counts and remembers itself.
func bytesOf(t testing.TB, family corev1.IPFamily, table string) []byte {
	t.Helper()
	s, err := xtables.Open(family)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	read, err := s.Read(table, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	entries := bytes.Clone(read.Entries)
	for at := 0; at < len(entries); {
		e, err := s.Wire.EntryAt(entries, at)
		if err != nil {
			t.Fatal(err)
		}
		clear(e.Bytes[s.Wire.TargetOffset-4 : s.Wire.TargetOffset]) // nfcache
		clear(e.Bytes[s.Wire.TargetOffset+4 : s.Wire.Entry])        // comefrom, counters
		if at+len(e.Bytes) == len(entries) {
			binary.NativeEndian.PutUint16(e.Bytes[s.Wire.TargetOffset+2:], uint16(s.Wire.HeadSize()))
			return entries[:at+s.Wire.HeadSize()] // without the pad
		}
		at += len(e.Bytes)
	}
	return entries
}

// installations are what a sequence of payloads leaves, after each.
func installations(t *testing.T, family corev1.IPFamily, before string, payloads []string, restore func(testing.TB, corev1.IPFamily, string) error) (texts []string, entries [][]byte) {
	t.Helper()
	if before != "" {
		mustRun(t, family, "restore", before)
	}
	for i, payload := range payloads {
		if err := restore(t, family, payload); err != nil {
			t.Fatalf("payload %d: %v\n%s", i, err, payload)
		}
		texts = append(texts, saved(t, family))
		for _, table := range []string{"nat", "filter"} {
			entries = append(entries, bytesOf(t, family, table))
		}
	}
	return texts, entries
}

// sameAsTool compares what payloads leave when given to the kernel and when given to the tool: to the letter what is
// saved, and to the byte what the kernel holds.
func sameAsTool(t *testing.T, family corev1.IPFamily, before string, payloads ...string) {
	t.Helper()
	var want, got []string
	var wantBytes, gotBytes [][]byte
	t.Run("tool", func(t *testing.T) {
		enter(t, family)
		want, wantBytes = installations(t, family, before, payloads, restoreWithTool)
	})
	t.Run("direct", func(t *testing.T) {
		enter(t, family)
		got, gotBytes = installations(t, family, before, payloads, restoreDirectly)
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("saved (-through the tool +directly):\n%s", diff)
	}
	for i := range gotBytes {
		if !bytes.Equal(wantBytes[i], gotBytes[i]) {
			t.Fatalf("after payload %d, table %d: %s", i/2, i%2, firstDifference(family, wantBytes[i], gotBytes[i]))
		}
	}
}

func firstDifference(family corev1.IPFamily, want, got []byte) string {
	w := xtables.Of(family)
	for at := 0; at < min(len(want), len(got)); {
		a, err := w.EntryAt(want, at)
		if err != nil {
			return err.Error()
		}
		b, err := w.EntryAt(got, at)
		if err != nil {
			return err.Error()
		}
		if !bytes.Equal(a.Bytes, b.Bytes) {
			return fmt.Sprintf("entry at byte %d\nthrough the tool\n%x\ndirectly\n%x", at, a.Bytes, b.Bytes)
		}
		at += len(a.Bytes)
	}
	return fmt.Sprintf("%d and %d bytes", len(want), len(got))
}

// every is a payload with every word that rules may have.
func every(family corev1.IPFamily) string {
	a, b, net, loop, end := "10.96.0.1", "10.0.0.7", "10.244.0.0/16", "127.0.0.0/8", "10.0.0.7:8080"
	program := "6,32 0 0 12,7 0 0 0,32 0 0 16,29 0 1 0,6 0 0 1,6 0 0 0" // source and destination are the same
	if family == corev1.IPv6Protocol {
		a, b, net, loop, end = "fd00:96::1", "fd00::7", "fd00:10::/61", "::1/128", "[fd00::7]:8080"
		program = "18,32 0 0 8,7 0 0 0,32 0 0 24,29 0 13 0,32 0 0 12,7 0 0 0,32 0 0 28,29 0 9 0," +
			"32 0 0 16,7 0 0 0,32 0 0 32,29 0 5 0,32 0 0 20,7 0 0 0,32 0 0 36,29 0 1 0,6 0 0 1,6 0 0 0"
	}
	return strings.NewReplacer("$a", a, "$b", b, "$net", net, "$loop", loop, "$end", end, "$program", program).Replace(`*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-SVC-A - [0:0]
:KUBE-SEP-B - [0:0]
:KUBE-SEP-A - [0:0]
-I PREROUTING 1 -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-I OUTPUT 1 -m comment --comment first -j KUBE-SERVICES
-I OUTPUT 1 -m conntrack --ctstate NEW -m comment --comment second -j KUBE-SERVICES
-A KUBE-POSTROUTING -m mark ! --mark 0x004000/0x004000 -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark 0x004000
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
-A KUBE-POSTROUTING -j MASQUERADE
-A KUBE-POSTROUTING -m conntrack --ctstate DNAT -m bpf --bytecode "$program" -j MASQUERADE --random-fully
-A KUBE-MARK-MASQ -j MARK --or-mark 0x004000
-A KUBE-MARK-MASQ -j MARK --and-mark 0xffff
-A KUBE-MARK-MASQ -j MARK --set-mark 0x1/0x3
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x1/0x3
-A KUBE-SERVICES -m comment --comment "ns/svc:p cluster IP" -m tcp -p tcp -d $a --dport 80 -j KUBE-SVC-A
-A KUBE-SERVICES -m udp -p udp -d $a --dport 53 -j KUBE-SVC-A
-A KUBE-SERVICES -m sctp -p sctp -d $a --dport 53 -j KUBE-SVC-A
-A KUBE-SERVICES -m sctp -p sctp --sport 1:1024 -j KUBE-SVC-A
-A KUBE-SERVICES -m tcp -p tcp ! --dport 1000:2000 --sport 7 -g KUBE-SVC-A
-A KUBE-SERVICES -m comment --comment "last" -m addrtype --dst-type LOCAL ! -d $loop -j KUBE-NODEPORTS
-A KUBE-SERVICES -d $net -j KUBE-NODEPORTS
-A KUBE-SERVICES ! -p udp -i cbr0 -j KUBE-NODEPORTS
-A KUBE-NODEPORTS ! -i veth+ -o eth0
-A KUBE-NODEPORTS -m addrtype ! --src-type LOCAL -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT
-A KUBE-NODEPORTS -m conntrack --ctstate INVALID,SNAT,UNTRACKED,NEW -j ACCEPT
-A KUBE-SVC-A -m comment --comment "ns/svc:p cluster IP" -m tcp -p tcp -d $a --dport 80 ! -s $net -j KUBE-MARK-MASQ
-A KUBE-SVC-A -m recent --name KUBE-SEP-A --rcheck --seconds 10800 --reap -j KUBE-SEP-A
-A KUBE-SVC-A -m statistic --mode random --probability 0.3333333333 -j KUBE-SEP-A
-A KUBE-SVC-A -m statistic --mode random --probability 0.5000000000 -j KUBE-SEP-A
-A KUBE-SVC-A -j KUBE-SEP-B
-A KUBE-SEP-A -s $b -j KUBE-MARK-MASQ
-A KUBE-SEP-A -m recent --name KUBE-SEP-A --set -m tcp -p tcp -j DNAT --to-destination $end
-A KUBE-SEP-B -m udp -p udp -j DNAT --to-destination $end
-A KUBE-SEP-B -m sctp -p sctp -j DNAT --to-destination $end
-A OUTPUT -j RETURN
COMMIT
*filter
:KUBE-SERVICES - [0:0]
:KUBE-FORWARD - [0:0]
-I FORWARD 1 -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A KUBE-SERVICES -m comment --comment "ns/none has no endpoints" -m tcp -p tcp -d $a --dport 80 -j REJECT
-A KUBE-SERVICES -m tcp -p tcp -d $a --dport 81 -j DROP
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m mark --mark 7 -j ACCEPT
-A KUBE-FORWARD -m conntrack --ctstate DNAT -m bpf --bytecode "$program" -j ACCEPT
COMMIT
`)
}

func TestEveryWord(t *testing.T) {
	for _, family := range families {
		t.Run(string(family), func(t *testing.T) { sameAsTool(t, family, "", every(family)) })
	}
}

// Rules are put between those that are installed, and those put there before.
func TestRulesBetween(t *testing.T) {
	const first = "*nat\n:KUBE-A - [0:0]\n-A OUTPUT -j RETURN\n-A OUTPUT -j KUBE-A\n-A OUTPUT -j ACCEPT\n-A KUBE-A -j MARK --set-mark 1\n-A KUBE-A -j RETURN\nCOMMIT\n"
	const second = "*nat\n:KUBE-B - [0:0]\n-I OUTPUT 1 -j KUBE-B\n-I OUTPUT 3 -j KUBE-A\n-I OUTPUT 1 -j KUBE-A\n-I OUTPUT 7 -j KUBE-B\n" +
		"-I KUBE-A 2 -j KUBE-B\n-I KUBE-A 4 -j KUBE-B\n-A OUTPUT -j KUBE-A\nCOMMIT\n"
	for _, family := range families {
		t.Run(string(family), func(t *testing.T) { sameAsTool(t, family, "", first, second) })
	}
}

// The match nfacct needs its object.
func TestAccounting(t *testing.T) {
	const payload = "*filter\n:KUBE-FORWARD - [0:0]\n" +
		"-A KUBE-FORWARD -m conntrack --ctstate INVALID -m nfacct --nfacct-name " + iptables.AccountInvalid + " -j DROP\nCOMMIT\n"
	for _, family := range families {
		t.Run(string(family), func(t *testing.T) {
			withObject := func(restore func(testing.TB, corev1.IPFamily, string) error) func(testing.TB, corev1.IPFamily, string) error {
				return func(t testing.TB, family corev1.IPFamily, text string) error {
					if err := kernel.EnsureAccounts(iptables.AccountInvalid); err != nil {
						t.Skip(err)
					}
					return restore(t, family, text)
				}
			}
			var want, got []string
			var wantBytes, gotBytes [][]byte
			t.Run("tool", func(t *testing.T) {
				enter(t, family)
				want, wantBytes = installations(t, family, "", []string{payload}, withObject(restoreWithTool))
			})
			t.Run("direct", func(t *testing.T) {
				enter(t, family)
				got, gotBytes = installations(t, family, "", []string{payload}, withObject(restoreDirectly))
			})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(wantBytes, gotBytes); diff != "" {
				t.Error(diff)
			}
		})
	}
}
