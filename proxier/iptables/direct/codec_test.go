package direct

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/seeds"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel/xtables"
)

// oneRule is the entry of one rule in chain A, decoded again.
func oneRule(t testing.TB, family corev1.IPFamily, rule string) (decoded string, err error) {
	b, err := newBlock(0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	// Chain number n begins at byte n million: beyond every rule.
	const far = 1_000_000
	chains := []string{"KUBE-MARK-MASQ", "KUBE-SVC-A", "KUBE-SEP-A"}
	e := encoder{wire: xtables.Of(family), revisions: newest, block: b, number: func(name []byte) (uint32, bool) {
		for i, c := range chains {
			if c == string(name) {
				return uint32(i), true
			}
		}
		return 0, false
	}}
	if err := e.rule([]byte(rule)); err != nil {
		return "", err
	}
	for _, at := range e.jumps {
		b.put32(int(at), (b.get32(int(at))+1)*far)
	}
	entry, err := e.wire.EntryAt(b.entries[:b.size], 0)
	if err != nil {
		t.Fatalf("%s: %v", rule, err)
	}
	if len(entry.Bytes) != b.size || b.size%xtables.Align != 0 {
		t.Fatalf("%s: an entry of %d bytes in %d", rule, len(entry.Bytes), b.size)
	}
	d := decoder{wire: e.wire, chainAt: func(offset uint32) (string, bool) {
		i := int(offset/far) - 1
		if offset%far != 0 || i < 0 || i >= len(chains) {
			return "", false
		}
		return chains[i], true
	}}
	decoded, err = d.rule("A", entry)
	if err != nil {
		t.Fatalf("%s: %v", rule, err)
	}
	return decoded, nil
}

// randomRule is one that the grammar allows.
func randomRule(rng *rand.Rand, family corev1.IPFamily) string {
	pick := func(from ...string) string { return from[rng.IntN(len(from))] }
	not := func() string { return pick("", "! ") }
	addr := func() string {
		if family == corev1.IPv6Protocol {
			return fmt.Sprintf("fd00:%x::%x", 1+rng.IntN(0xffff), 1+rng.IntN(0xffff))
		}
		return fmt.Sprintf("10.%d.%d.%d", rng.IntN(256), rng.IntN(256), rng.IntN(256))
	}
	port := func() int { return 1 + rng.IntN(65535) }
	protocol := pick("tcp", "udp", "sctp")
	parts := []string{
		pick("", not()+"-s "+addr()), pick("", fmt.Sprintf("%s-d %s/%d", not(), addr(), 1+rng.IntN(32))),
		pick("", not()+"-i "+pick("eth0", "cbr0", "veth+", "a23456789012345")), pick("", not()+"-o eth1"),
	}
	switch rng.IntN(4) {
	case 0:
		parts = append(parts, not()+"-p "+protocol)
	case 1:
		parts = append(parts, fmt.Sprintf("-m %s -p %s %s--dport %d", protocol, protocol, not(), port()))
	case 2:
		parts = append(parts, fmt.Sprintf("-p %s -m %s --sport %d --dport %d:65534", protocol, protocol, port(), 1+rng.IntN(60000)))
	}
	for _, match := range []string{
		`-m comment --comment "` + pick("ns/svc:http cluster IP", "one", "a -> b", strings.Repeat("x", 255)) + `"`,
		"-m addrtype " + not() + "--" + pick("src", "dst") + "-type LOCAL",
		"-m conntrack " + not() + "--ctstate " + pick("INVALID", "NEW", "RELATED,ESTABLISHED", "RELATED,ESTABLISHED,DNAT", "UNTRACKED,SNAT"),
		"-m mark " + not() + "--mark " + pick("0x004000/0x004000", "7", "0x1/0xff"),
		fmt.Sprintf("-m statistic --mode random --probability %.10f", 1/float64(2+rng.IntN(5000))),
		pick("-m recent --name KUBE-SEP-A --rcheck --seconds 10800 --reap", "-m recent --name KUBE-SEP-A --set"),
		"-m nfacct --nfacct-name " + iptables.AccountInvalid,
		fmt.Sprintf(`-m bpf --bytecode "3,32 0 0 %d,21 0 1 %d,6 0 0 1"`, rng.IntN(40), rng.Uint32()),
	} {
		if rng.IntN(4) == 0 {
			parts = append(parts, match)
		}
	}
	// The order of addresses, ports and matches is free, but that a match comes before its options.
	rng.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	end := addr() + ":8080"
	if family == corev1.IPv6Protocol {
		end = "[" + addr() + "]:8080"
	}
	parts = append(parts, pick("", "-j ACCEPT", "-j DROP", "-j RETURN", "-j REJECT", "-j MASQUERADE", "-j MASQUERADE --random-fully",
		"-j MARK --or-mark 0x004000", "-j MARK --xor-mark 0x004000", "-j MARK --set-xmark 0x1/0xf", "-j DNAT --to-destination "+end,
		"-j KUBE-MARK-MASQ", "-j KUBE-SVC-A", "-g KUBE-SEP-A"))
	return strings.Join(strings.Fields(strings.Join(parts, " ")), " ")
}

// What is encoded comes back as iptables-save would print it.
func TestDecodeEncoded(t *testing.T) {
	seed := seeds.Of(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 5000 {
		for _, family := range families {
			rule := randomRule(rng, family)
			got, err := oneRule(t, family, rule)
			if err != nil {
				t.Fatalf("%s: %v", rule, err)
			}
			// iptables-save quotes only what needs quotes.
			want := strings.Replace(iptables.Canonical("-A A "+rule, family), `--comment "one"`, "--comment one", 1)
			want = strings.Replace(want, `--comment "xxx`, "--comment xxx", 1)
			want = strings.Replace(want, `xxx"`, "xxx", 1)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s\n(-want +got):\n%s", rule, diff)
			}
		}
	}
}

// Rules in the kernel's tables are decoded as iptables-legacy-save prints them.
func TestDecodeAsSaved(t *testing.T) {
	for _, family := range families {
		t.Run(string(family), func(t *testing.T) {
			enter(t, family)
			if err := restoreWithTool(t, family, every(family)); err != nil {
				t.Fatal(err)
			}
			var want []string
			for line := range strings.Lines(saved(t, family, "-t", "nat")) {
				if line[0] == '-' {
					want = append(want, strings.TrimSpace(line))
				}
			}
			got, err := open(t, family).Rules(iptables.NAT)
			if err != nil {
				t.Fatal(err)
			}
			// iptables-save prints the rules of built-in chains first, by hook, then the others by name: so does the table.
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-saved +decoded):\n%s", diff)
			}
		})
	}
}

// Words that are not known, or stand where they mean nothing, are errors, never left out.
func TestStrictness(t *testing.T) {
	for rule, want := range map[string]string{
		"-m nosuchmatch -j ACCEPT":                                  `match "nosuchmatch"`,
		"-m comment -j ACCEPT":                                      "lacks an option",
		"-m comment --comment \"open":                               "not closed",
		"-m comment --comment \"" + strings.Repeat("x", 256) + "\"": "1 to 255",
		"--dport 80 -j ACCEPT":                                      "without -m tcp",
		"-m tcp -p tcp --dport 65536":                               "16 bits",
		"-m tcp -p tcp --dport 9:8":                                 "comes before",
		"-m tcp -m tcp":                                             "twice",
		"-p icmp -j ACCEPT":                                         "protocol",
		"-s 10.0.0.1/33 -j ACCEPT":                                  "at most 32",
		"-s fd00::1 -j ACCEPT":                                      "address of 32",
		"-i abcdefghijklmnop":                                       "longer than 15",
		"-j KUBE-NONE":                                              "neither a chain nor a target",
		"-j ACCEPT -s 10.0.0.1":                                     "after target",
		"-j MARK --or-mark":                                         "no value",
		"-j MARK --half-mark 1":                                     "no option of MARK",
		"-j DNAT --to-destination 10.0.0.1":                         "address and a port",
		"-j DNAT --to-destination 10.0.0.1:0":                       "address and a port",
		"-j MASQUERADE --randomly":                                  "no option of MASQUERADE",
		"! -j ACCEPT":                                               "! before",
		"! -m comment":                                              "! before",
		"-m comment ! --comment x":                                  "! before",
		"! ! -s 10.0.0.1":                                           "two !",
		"-s 10.0.0.1 !":                                             "! before nothing",
		"-m conntrack --ctstate WORN":                               "no state",
		"-m statistic --mode nth":                                   "want random",
		"-m statistic --mode random --probability 2":                "not a probability",
		"-m addrtype --dst-type BROADCAST":                          "want LOCAL",
		"-m recent --name":                                          "no value",
		`-m bpf -j ACCEPT`:                                          "lacks an option",
		`-m bpf ! --bytecode "1,6 0 0 1"`:                           "! before",
		`-m bpf --bytecode "0,"`:                                    "1 to 64",
		`-m bpf --bytecode "65,6 0 0 1"`:                            "1 to 64",
		`-m bpf --bytecode "2,6 0 0 1"`:                             `instruction 1 of 2: "" is not a number`,
		`-m bpf --bytecode "1,6 0 0"`:                               "want four numbers",
		`-m bpf --bytecode "1,6 0 0 1 2"`:                           "want four numbers",
		`-m bpf --bytecode "1,6 0 256 1"`:                           "number of 8 bits",
		`-m bpf --bytecode "1,6 0 0 1,6 0 0 0"`:                     `"6 0 0 0" behind instruction 0`,
		"nonsense":                                                  "no word",
	} {
		if _, err := oneRule(t, corev1.IPv4Protocol, rule); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", rule, err, want)
		}
	}
}

func TestStrictLines(t *testing.T) {
	for text, want := range map[string]string{
		"nat\n":                                                    "line 1: \"nat\": want a table",
		"*nat\n:A - [0:0]\n":                                       "line 2: no COMMIT",
		"*nat\n:A ACCEPT [0:0]\nCOMMIT\n":                          "line 2: chain line",
		"*nat\n:OUTPUT - [0:0]\nCOMMIT\n":                          "line 2: OUTPUT is a built-in chain",
		"*nat\n-A NONE -j ACCEPT\nCOMMIT\n":                        "line 2: there is no chain",
		"*nat\n-X NONE\nCOMMIT\n":                                  "line 2: there is no chain",
		"*nat\n-F OUTPUT\nCOMMIT\n":                                "line 2: \"-F OUTPUT\" is no line",
		"*nat\n-I OUTPUT 2 -j ACCEPT\nCOMMIT\n":                    "line 2: \"-I OUTPUT 2",
		"*nat\n-I OUTPUT 0 -j ACCEPT\nCOMMIT\n":                    "line 2: \"-I OUTPUT 0",
		"*nat\n:A - [0:0]\n-A A -j B\nCOMMIT\n":                    "line 3: \"B\" is neither",
		"*nat\n:A - [0:0]\n-A A -j OUTPUT\nCOMMIT\n":               "line 3: \"OUTPUT\" is neither",
		"*nat\n:A - [0:0]\n:B - [0:0]\n-A A -j B\n-X B\nCOMMIT\n":  "line 5: a rule refers to chain B",
		"*nat\n:A - [0:0]\n-A A -j ACCEPT\n-X A\nCOMMIT\n":         "line 4: chain \"A\" has rules",
		"*nat\n:A - [0:0]\n-X A\n-A A -j ACCEPT\nCOMMIT\n":         "line 4: there is no chain",
		"*nat\n:A - [0:0]\n\nCOMMIT\n":                             "line 3: \"\" is no line",
		"*nat\n:0123456789012345678901234567890 - [0:0]\nCOMMIT\n": "line 2: chain name",
	} {
		_, err := trySplice(emptyTable(t, corev1.IPv4Protocol), []byte(text))
		var line *lineError
		if !errors.As(err, &line) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}

// A rule of any text is refused, or makes an entry that can be read again.
func FuzzRule(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 30 {
		f.Add(randomRule(rng, corev1.IPv4Protocol), false)
		f.Add(randomRule(rng, corev1.IPv6Protocol), true)
	}
	f.Add(`-m conntrack --ctstate DNAT -m bpf --bytecode "6,32 0 0 12,7 0 0 0,32 0 0 16,29 0 1 0,6 0 0 1,6 0 0 0" -j MASQUERADE`, false)
	f.Add(`-m bpf --bytecode "64,1 2 3 4" -j ACCEPT`, true)
	f.Fuzz(func(t *testing.T, rule string, v6 bool) {
		family := families[0]
		if v6 {
			family = families[1]
		}
		if strings.ContainsAny(rule, "\n") {
			return // never within a line
		}
		_, _ = oneRule(t, family, rule)
	})
}

// A table with any bytes in any place is refused or understood; of one that is understood, a payload makes another that
// is.
func FuzzTable(f *testing.F) {
	var full []*xtables.Table
	for _, family := range families {
		c := &cluster{family, 2}
		full = append(full, spliced(f, emptyTable(f, family), []byte(c.payload(2, upTo(2), 0))))
		f.Add([]byte{0, 0}, uint32(0), []byte(c.payload(2, []int{1}, 1)), family == corev1.IPv6Protocol)
		f.Add([]byte{255, 255}, uint32(0), []byte("*nat\n:A - [0:0]\n-I OUTPUT 1 -j A\n-A KUBE-SERVICES -j A\nCOMMIT\n"), family == corev1.IPv6Protocol)
	}
	f.Fuzz(func(t *testing.T, patch []byte, at uint32, payload []byte, v6 bool) {
		from := full[0]
		if v6 {
			from = full[1]
		}
		table := &xtables.Table{Wire: from.Wire, Info: from.Info, Entries: bytes.Clone(from.Entries)}
		copy(table.Entries[int(at)%len(table.Entries):], patch)
		made, err := trySplice(table, payload)
		if err != nil {
			return
		}
		rulesOf(t, made)
	})
}
