package rule

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/net/bpf"
	corev1 "k8s.io/api/core/v1"
)

const (
	ipv4 = corev1.IPv4Protocol
	ipv6 = corev1.IPv6Protocol
)

// samples are the rules in testdata, by family, as iptables-save prints them.
func samples(t testing.TB) map[corev1.IPFamily][]string {
	t.Helper()
	all := map[corev1.IPFamily][]string{}
	for family, name := range map[corev1.IPFamily]string{ipv4: "testdata/ipv4.txt", ipv6: "testdata/ipv6.txt"} {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			if line := lines.Text(); line != "" && line[0] != '#' {
				all[family] = append(all[family], line)
			}
		}
		if err := lines.Err(); err != nil || len(all[family]) == 0 {
			t.Fatalf("%s has %d rules, %v", name, len(all[family]), err)
		}
	}
	return all
}

func parsed(t testing.TB, family corev1.IPFamily, line string) (string, Rule) {
	t.Helper()
	chain, r, err := Parse(family, line)
	if err != nil {
		t.Fatal(err)
	}
	return chain, r
}

// What iptables-save prints comes back byte for byte, and every line is another rule.
func TestRoundTrip(t *testing.T) {
	for family, lines := range samples(t) {
		type place struct {
			chain, line string
			rule        Rule
		}
		var all []place
		for _, line := range lines {
			chain, r := parsed(t, family, line)
			if got := r.Line(chain); got != line {
				t.Errorf("printed %s\nparsed  %s", got, line)
			}
			for _, other := range all {
				if other.chain == chain && other.rule.Equal(&r) {
					t.Errorf("equal:\n%s\n%s", other.line, line)
				}
			}
			all = append(all, place{chain, line, r})
		}
	}
}

// Left: spellings of a rule. Right: the rule as iptables-save prints it.
func TestSpellings(t *testing.T) {
	for _, c := range []struct {
		family         corev1.IPFamily
		written, saved string
	}{
		// As a proxier writes them.
		{ipv4, `-A S -m comment --comment "ns/svc:p cluster IP" -m tcp -p tcp -d 10.96.0.1 --dport 80 -j KUBE-SVC-X`,
			`-A S -d 10.96.0.1/32 -p tcp -m comment --comment "ns/svc:p cluster IP" -m tcp --dport 80 -j KUBE-SVC-X`},
		{ipv4, `-A S -m comment --comment ns/svc -m udp -p udp --dport 53 -j X`, `-A S -p udp -m comment --comment "ns/svc" -m udp --dport 53 -j X`},
		{ipv4, `-A S -m addrtype --dst-type LOCAL -m sctp -p sctp --dport 9 -j DROP`, `-A S -p sctp -m addrtype --dst-type LOCAL -m sctp --dport 9 -j DROP`},
		{ipv4, `-A S -m tcp -p tcp -d 10.96.0.1 --dport 80 ! -s 10.128.0.0/9 -j X`, `-A S ! -s 10.128.0.0/9 -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j X`},
		{ipv4, `-A S -d 127.0.0.0/8 ! -s 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP`,
			`-A S ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP`},
		{ipv4, `-A S -m mark ! --mark 0x004000/0x004000 -j RETURN`, `-A S -m mark ! --mark 0x4000/0x4000 -j RETURN`},
		{ipv4, `-A S -j MARK --or-mark 0x004000`, `-A S -j MARK --set-xmark 0x4000/0x4000`},
		{ipv4, `-A S -j MARK --xor-mark 0x004000`, `-A S -j MARK --set-xmark 0x4000/0x0`},
		{ipv4, `-A S -m statistic --mode random --probability 0.5000000000 -j X`, `-A S -m statistic --mode random --probability 0.50000000000 -j X`},
		{ipv4, `-A S -m statistic --mode random --probability 0.3333333333 -j X`, `-A S -m statistic --mode random --probability 0.33333333349 -j X`},
		{ipv4, `-A S -m recent --name X --rcheck --seconds 10800 --reap -j X`,
			`-A S -m recent --rcheck --seconds 10800 --reap --name X --mask 255.255.255.255 --rsource -j X`},
		{ipv4, `-A S -m recent --name X --set -m tcp -p tcp -j DNAT --to-destination 10.1.0.1:80`,
			`-A S -p tcp -m recent --set --name X --mask 255.255.255.255 --rsource -m tcp -j DNAT --to-destination 10.1.0.1:80`},
		{ipv6, `-A S -m recent --name X --set -j ACCEPT`, `-A S -m recent --set --name X --mask ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff --rsource -j ACCEPT`},
		{ipv4, `-A S -m tcp -p tcp -d 10.96.0.1 --dport 80 -j REJECT`, `-A S -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable`},
		{ipv6, `-A S -m tcp -p tcp -d fd00:96::1 --dport 80 -j REJECT`, `-A S -d fd00:96::1/128 -p tcp -m tcp --dport 80 -j REJECT --reject-with icmp6-port-unreachable`},
		{ipv4, `-A S -m conntrack --ctstate INVALID -m nfacct --nfacct-name pkts -j DROP`, `-A S -m conntrack --ctstate INVALID -m nfacct --nfacct-name  pkts -j DROP`},
		{ipv4, `-A S -m tcp -p tcp --dport 80 -d 127.0.0.0/8 -m nfacct --nfacct-name pkts -j X`, `-A S -d 127.0.0.0/8 -p tcp -m tcp --dport 80 -m nfacct --nfacct-name  pkts -j X`},

		// Addresses, devices and protocols.
		{ipv4, `-A S -s 10.1.2.3/16`, `-A S -s 10.1.0.0/16`},
		{ipv4, `-A S -s 0.0.0.0/0 -d 10.1.2.3/0`, `-A S`},
		{ipv6, `-A S -s fd00:0:0::1`, `-A S -s fd00::1/128`},
		{ipv4, `-A S -i + -o +`, `-A S`},
		{ipv4, `-A S -p 6`, `-A S -p tcp`},
		{ipv4, `-A S -f -s 10.0.0.1/255.0.255.0`, `-A S -f -s 10.0.0.1/255.0.255.0`},

		// Ports.
		{ipv4, `-A S -m tcp --dport 1 -p tcp`, `-A S -p tcp -m tcp --dport 1`},

		// Other matches.
		{ipv4, `-A S -m mark --mark 16384/0xffffffff`, `-A S -m mark --mark 0x4000`},
		{ipv4, `-A S -m mark --mark 010/0X10`, `-A S -m mark --mark 0x8/0x10`},
		{ipv4, `-A S -m statistic --probability 1e-1 --mode random`, `-A S -m statistic --mode random --probability 0.10000000009`},
		{ipv4, `-A S -m recent --set`, `-A S -m recent --set --name DEFAULT --mask 255.255.255.255 --rsource`},

		// Targets.
		{ipv4, `-A S -j DROP -m mark --mark 1`, `-A S -m mark --mark 0x1 -j DROP`},
		{ipv4, `-A S -j MARK --set-xmark 1`, `-A S -j MARK --set-xmark 0x1/0xffffffff`},
		{ipv6, `-A S -j DNAT --to-destination [fd00:0::1]:80`, `-A S -j DNAT --to-destination [fd00::1]:80`},

		// Words.
		{ipv4, "  -A  S\t-m comment --comment \"first\" -j \"X\" \n", `-A S -m comment --comment first -j X`},
		{ipv4, `-A S -m comment --comment "a\b" -j X`, `-A S -m comment --comment ab -j X`},
		{ipv4, `-A S -m comment --comment a"b c" -j X`, `-A S -m comment --comment "ab c" -j X`},
		{ipv4, `-A S -m comment --comment -j -j X`, `-A S -m comment --comment -j -j X`},
		{ipv4, `[12:3456] -A S -j X`, `-A S -j X`},
		{ipv4, `-A S -m physdev   --physdev-in  a`, `-A S -m physdev --physdev-in a`},
	} {
		chain, r := parsed(t, c.family, c.written)
		if got := r.Line(chain); got != c.saved {
			t.Errorf("%s\ngot  %s\nwant %s", c.written, got, c.saved)
		}
		savedChain, saved := parsed(t, c.family, c.saved)
		if chain != savedChain || !r.Equal(&saved) {
			t.Errorf("not equal:\n%s\n%s", c.written, c.saved)
		}
	}
}

// Rules that differ in what a spelling may hide.
func TestDifferent(t *testing.T) {
	for _, pair := range [][2]string{
		{`-A S -m comment --comment c -m mark --mark 1`, `-A S -m mark --mark 1 -m comment --comment c`}, // the tools compare in order
		{`-A S -p tcp`, `-A S -p tcp -m tcp`}, // match tcp excludes fragments
		{`-A S -j X`, `-A S -g X`},
		{`-A S`, `-A S -j RETURN`},
		{`-A S -j LOG`, `-A S -g LOG`},
		{`-A S -p tcp -m tcp --dport 80`, `-A S -p udp -m udp --dport 80`},
		{`-A S -p tcp -m tcp --dport 80`, `-A S -p tcp -m tcp --sport 80`},
		{`-A S -p tcp -m tcp --dport 0`, `-A S -p tcp -m tcp`},
		{`-A S ! -s 0.0.0.0/0`, `-A S`},
		{`-A S ! -i +`, `-A S`},
		{`-A S -m recent --rcheck`, `-A S -m recent ! --rcheck`},
		{`-A S -m recent --rcheck`, `-A S -m recent --rcheck --rdest`},
		{`-A S -m statistic --mode random --probability 0.5`, `-A S -m statistic --mode random ! --probability 0.5`},
		{`-A S -m mark --mark 0`, `-A S -m mark --mark 0/0`},
		{`-A S -j DNAT --to-destination 10.0.0.1`, `-A S -j DNAT --to-destination 10.0.0.1:1`},
		{`-A S -f`, `-A S ! -f`},
		{`-A S -m set --match-set x src`, `-A S -m set ! --match-set x src`},
	} {
		chain, a := parsed(t, ipv4, pair[0])
		_, b := parsed(t, ipv4, pair[1])
		if a.Equal(&b) || a.Line(chain) == b.Line(chain) {
			t.Errorf("equal: %s and %s", pair[0], pair[1])
		}
	}
}

// No change of one word is lost: the line is refused or is another rule.
func TestMutations(t *testing.T) {
	for family, lines := range samples(t) {
		for _, line := range lines {
			chain, want := parsed(t, family, line)
			for _, m := range mutations(t, line) {
				mutatedChain, got, err := Parse(family, m.line)
				if err == nil && mutatedChain == chain && (got.Equal(&want) || got.Line(chain) == line) {
					t.Errorf("%s is lost: %s", m.what, m.line)
				}
			}
		}
	}
}

type mutation struct{ what, line string }

// mutations returns the line without each word, with each word inverted, with a longer word, and with each digit
// changed.
func mutations(t *testing.T, line string) []mutation {
	t.Helper()
	words, err := splitWords(nil, line)
	if err != nil {
		t.Fatal(err)
	}
	var all []mutation
	add := func(what string, i int, replacement ...string) {
		var text []string
		for at, w := range words {
			if at == i {
				text = append(text, replacement...)
				continue
			}
			text = append(text, w.raw)
		}
		all = append(all, mutation{fmt.Sprintf("%s of %s", what, words[i].raw), strings.Join(text, " ")})
	}
	for i, w := range words {
		if w.raw != "--rsource" { // the default
			add("the removal", i)
		}
		add("the inversion", i, "!", w.raw)
		if last := len(w.raw) - 1; w.raw[last] == '"' {
			add("a letter", i, w.raw[:last]+`x"`)
		} else {
			add("a letter", i, w.raw+"x")
		}
		digits := len(w.raw)
		if i > 0 && words[i-1].raw == "--probability" {
			digits -= 2 // less than the kernel's unit
		}
		for at := range digits {
			if c := w.raw[at]; '0' <= c && c <= '9' {
				changed := w.raw[:at] + string('0'+(c-'0'+1)%10) + w.raw[at+1:]
				if !samePrefix(w.raw, changed) {
					add("a digit", i, changed)
				}
			}
		}
	}
	return all
}

// samePrefix reports whether two prefixes differ in host bits alone.
func samePrefix(a, b string) bool {
	p, errP := netip.ParsePrefix(a)
	q, errQ := netip.ParsePrefix(b)
	return errP == nil && errQ == nil && p.Masked() == q.Masked()
}

// Errors name the line and the option.
func TestErrors(t *testing.T) {
	for line, want := range map[string]string{
		``:                                       `not a rule`,
		`-I X -j DROP`:                           `not a rule`,
		`-A`:                                     `not a rule`,
		`-A -j DROP`:                             `chain "-j" begins with '-'`,
		`-A X !`:                                 `! without an option`,
		`-A X ! ! -s 10.0.0.1`:                   `option !: not an option of a rule`,
		`-A X DROP`:                              `option DROP: not an option of a rule`,
		`-A X -x`:                                `option -x: not an option of a rule`,
		`-A X -s`:                                `option -s: no value`,
		`-A X -s fd00::1`:                        `option -s: fd00::1 is of another family`,
		`-A X -s 10.0.0.1/33`:                    `option -s: prefix length "33"`,
		`-A X -s 10.0.0.1,10.0.0.2`:              `option -s: "10.0.0.1,10.0.0.2" is not an address`,
		`-A X -s 10.0.0.1 -s 10.0.0.2`:           `option -s: given twice`,
		`-A X -i ""`:                             `option -i: empty name`,
		`-A X --dport 80`:                        `option --dport: not an option of a rule, and no extension has it`,
		`-A X -p udp -m tcp --dport 80`:          `match tcp: needs -p tcp`,
		`-A X ! -p tcp -m tcp`:                   `match tcp: needs -p tcp`,
		`-A X -p tcp -m tcp --dport 65536`:       `match tcp: --dport: "65536" is not a port`,
		`-A X -p tcp -m tcp --dport 1 --dport 2`: `option --dport: given twice`,
		`-A X ! -m comment --comment c`:          `option -m: cannot be inverted`,
		`-A X -m comment ! --comment c`:          `option --comment: cannot be inverted`,
		`-A X -m comment`:                        `match comment: no --comment`,
		`-A X -m comment --comment`:              `option --comment: no value`,
		`-A X -m comment --comment "c`:           `unbalanced quote`,
		"-A X -m comment --comment a\x01":        `control character '\x01'`,
		`-A X -m addrtype`:                       `match addrtype: no --src-type or --dst-type`,
		`-A X -m conntrack`:                      `match conntrack: no --ctstate`,
		`-A X -m conntrack --ctstate OLD`:        `match conntrack: state "OLD" is not known`,
		`-A X -m mark --mark 0xzz`:               `match mark: "0xzz" is not a number`,
		`-A X -m mark --mark 4294967296`:         `match mark: "4294967296" is not a number`,
		`-A X -m statistic --mode nth --probability 1`:      `match statistic: mode "nth" is not known`,
		`-A X -m statistic --mode random`:                   `match statistic: no --probability`,
		`-A X -m statistic --mode random --probability 1.5`: `match statistic: "1.5" is not a probability`,
		`-A X -m statistic --mode random --probability NaN`: `match statistic: "NaN" is not a probability`,
		`-A X -m recent --name X`:                           `match recent: no --set or --rcheck`,
		`-A X -m recent --set --rcheck`:                     `match recent: --rcheck is a second command`,
		`-A X -m recent --rcheck --reap`:                    `match recent: --reap without --seconds`,
		`-A X -m bpf --bytecode "2,6 0 0 1"`:                `match bpf: bytecode: 1 instructions of 2`,
		`-A X -m bpf --bytecode "1,6 0 0"`:                  `match bpf: bytecode: instruction 0: "6 0 0" is no instruction`,
		`-A X -m bpf --bytecode "1,6 0 256 0"`:              `match bpf: bytecode: instruction 0: strconv`,
		`-A X -j ACCEPT -j DROP`:                            `option -j: a second target`,
		`-A X -g Y --random-fully`:                          `option --random-fully: not an option of a rule`,
		`-A X -j "A B"`:                                     `option -j: "A B" is not a name`,
		`-A X -j MARK`:                                      `target MARK: 0 marks instead of one`,
		`-A X -j MARK --or-mark 1 --xor-mark 1`:             `target MARK: 2 marks instead of one`,
		`-A X -j MARK --or-mark 1/1`:                        `target MARK: --or-mark: "1/1" is not a number`,
		`-A X -j DNAT`:                                      `target DNAT: no --to-destination`,
		`-A X -j DNAT --to-destination 10.0.0.1:0`:          `target DNAT: --to-destination: 10.0.0.1:0 has port 0`,
		`-A X -j DNAT --to-destination [fd00::1]:80`:        `target DNAT: --to-destination: fd00::1 is of another family`,
		`[1:x] -A X`: `counter "x" is not a number`,
		`[1 -A X`:    `is not a number`,
	} {
		_, _, err := Parse(ipv4, line)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), fmt.Sprintf(": %q", line)) {
			t.Errorf("%s: error %v, want one with %q and the line", line, err, want)
		}
	}
}

// The fields of some rules.
func TestFields(t *testing.T) {
	for line, want := range map[string]Rule{
		`[12:3456] -A X ! -s 10.0.0.0/8 -i eth0 -p udp -m comment --comment "a b" -m udp ! --dport 50:53 -j Y`: {
			Src: netip.MustParsePrefix("10.0.0.0/8"), In: "eth0", Proto: UDP, Not: NotSrc | NotDstPorts, DstPorts: Ports{50, 53},
			Matches:  []Match{{Kind: MatchComment, Name: "a b"}, {Kind: MatchPorts}},
			Target:   Target{Kind: TargetJump, Chain: "Y"},
			Counters: [2]uint64{12, 3456},
		},
		`-A X -m conntrack ! --ctstate NEW,DNAT -m mark --mark 0x1/0x3 -m statistic --mode random --probability 0.5 -g Y`: {
			Matches: []Match{
				{Kind: MatchState, Not: true, Bits: StateNew | StateDNAT}, {Kind: MatchMark, Bits: 1, Mask: 3},
				{Kind: MatchRandom, Bits: ProbabilityUnit / 2},
			},
			Target: Target{Kind: TargetJump, Chain: "Y", Goto: true},
		},
		`-A X -m recent --rcheck --seconds 9 --reap --name L -m bpf --bytecode "1,6 1 2 3" -j DNAT --to-destination 10.0.0.1:80`: {
			Matches: []Match{
				{Kind: MatchRecent, Bits: RecentCheck | RecentReap, Seconds: 9, Name: "L"},
				{Kind: MatchProgram, Program: []bpf.RawInstruction{{Op: 6, Jt: 1, Jf: 2, K: 3}}},
			},
			Target: Target{Kind: TargetDNAT, To: netip.MustParseAddrPort("10.0.0.1:80")},
		},
		`-A X -f -m set ! --match-set x "src" -j LOG --log-prefix "a b"`: {
			Words:   "-f",
			Matches: []Match{{Kind: MatchForeign, Words: `set ! --match-set x "src"`}},
			Target:  Target{Kind: TargetForeign, Words: `LOG --log-prefix "a b"`},
		},
	} {
		_, got := parsed(t, ipv4, line)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s\ngot  %+v\nwant %+v", line, got, want)
		}
	}
	_, r := parsed(t, ipv4, `-A X -m mark --mark 1 -m comment --comment first -m comment --comment second`)
	if c := r.Comment(); c != "first" {
		t.Errorf("comment %q", c)
	}
	if c := (&Rule{}).Comment(); c != "" {
		t.Errorf("comment %q of a rule without", c)
	}
}

// A field that Equal does not compare would hide differences.
func TestEqualComparesEveryField(t *testing.T) {
	matches := func(m Match) Rule { return Rule{Matches: []Match{m}} }
	check := func(name string, field reflect.Value, equal func() bool) {
		t.Helper()
		if !equal() {
			t.Fatalf("%s: unchanged rules differ", name)
		}
		switch old := field.Interface().(type) {
		case netip.Prefix:
			field.Set(reflect.ValueOf(netip.MustParsePrefix("10.0.0.0/8")))
		case netip.AddrPort:
			field.Set(reflect.ValueOf(netip.MustParseAddrPort("10.0.0.1:80")))
		case Ports:
			field.Set(reflect.ValueOf(Ports{1, 2}))
		case Target:
			field.Set(reflect.ValueOf(Target{Kind: TargetDrop}))
		case []Match:
			field.Set(reflect.ValueOf(append(old, Match{})))
		case []bpf.RawInstruction:
			field.Set(reflect.ValueOf([]bpf.RawInstruction{{}}))
		case bool:
			field.SetBool(true)
		case string:
			field.SetString("x")
		default:
			field.SetUint(1)
		}
		if equal() {
			t.Errorf("%s is not compared", name)
		}
	}
	for i := range reflect.TypeFor[Rule]().NumField() {
		if name := reflect.TypeFor[Rule]().Field(i).Name; name != "Counters" {
			var a, b Rule
			check(name, reflect.ValueOf(&a).Elem().Field(i), func() bool { return a.Equal(&b) })
		}
	}
	for i := range reflect.TypeFor[Match]().NumField() {
		var m Match
		b := matches(Match{})
		check("Match."+reflect.TypeFor[Match]().Field(i).Name, reflect.ValueOf(&m).Elem().Field(i), func() bool {
			a := matches(m)
			return a.Equal(&b)
		})
	}
	for i := range reflect.TypeFor[Target]().NumField() {
		var a, b Rule
		check("Target."+reflect.TypeFor[Target]().Field(i).Name, reflect.ValueOf(&a.Target).Elem().Field(i), func() bool { return a.Equal(&b) })
	}
	a, b := Rule{Counters: [2]uint64{1, 2}}, Rule{}
	if !a.Equal(&b) {
		t.Error("counters are compared")
	}
}

// Whatever Parse accepts is printed as an equal rule.
func FuzzParse(f *testing.F) {
	for family, lines := range samples(f) {
		for _, line := range lines {
			f.Add(line, family == ipv6)
		}
	}
	f.Add(`-A S -j LOG -m foo "--a" x -s 10.0.0.1/255.0.255.0 ! "--b" y -p tcp --dport :0`, false)
	f.Fuzz(func(t *testing.T, line string, six bool) {
		family := ipv4
		if six {
			family = ipv6
		}
		chain, r, err := Parse(family, line)
		if err != nil {
			return
		}
		printed := r.Line(chain)
		again, same, err := Parse(family, printed)
		if err != nil {
			t.Fatalf("%q is printed as %q: %v", line, printed, err)
		}
		if again != chain || !same.Equal(&r) {
			t.Fatalf("%q is printed as %q, another rule:\n%+v\n%+v", line, printed, r, same)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	lines := samples(b)[ipv4]
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, _, err := Parse(ipv4, lines[i%len(lines)]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	var rules []Rule
	for _, line := range samples(b)[ipv4] {
		_, r := parsed(b, ipv4, line)
		rules = append(rules, r)
	}
	var text []byte
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		text = rules[i%len(rules)].Append(text[:0])
	}
}
