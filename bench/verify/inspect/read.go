package inspect

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/verify/owner"
	"synclab/proxier/iptables/rule"
)

// Dump is what a node had in netfilter.
type Dump struct {
	Tables []*Table
	// Saved are the outputs of iptables-save, one for each family and variant.
	Saved []*Saved
	// Unreadable is the number of rules whose destination the tool could not print.
	Unreadable int
	// Notes say what was skipped.
	Notes []string
}

// Saved is an output of iptables-save or ip6tables-save.
type Saved struct {
	Family corev1.IPFamily
	Tables rule.Tables
	set    string
	lines  [][]byte // of the input; those of others are empty, so that errors have the right numbers
}

// Table is a table of one family. Set is the ruleset that it belongs to: "IPv4 iptables", "IPv6 nftables".
type Table struct {
	Set, Name      string
	Family         corev1.IPFamily // empty: both, as inet has
	Chains         map[string]*Chain
	Maps, Elements int
	Partial        bool // rules of iptables-nft, as nft prints them: without what it does not know
}

// Chain is a chain, or a map of nf_tables with verdicts: its name begins with @ then, and its rules are the elements.
type Chain struct {
	Name  string
	Base  bool // packets enter it from a hook
	Rules []Rule
}

// isMap reports whether it is a map.
func (c *Chain) isMap() bool { return strings.HasPrefix(c.Name, "@") }

// Rule is what a rule or an element of a map does, as far as the way to an endpoint needs it.
type Rule struct {
	Text, Comment string
	Jumps         []string // to chains, and to the maps that it looks up
	To            []netip.AddrPort
	Front         *Frontend // what it matches; nil: something else
	Share         float64   // the part of the remaining packets that it takes at random; 0: all
	Slots         int       // of numgen: the number of slots; 0: it has none
	sticky        bool      // for clients that an endpoint remembers
}

// Frontend is where clients reach a Service port. Without an address it is a NodePort.
type Frontend struct {
	Addr     netip.Addr
	Protocol string
	Port     uint16
}

func (f Frontend) String() string {
	if !f.Addr.IsValid() {
		return fmt.Sprintf("NodePort %d %s", f.Port, f.Protocol)
	}
	return fmt.Sprintf("%s %s", netip.AddrPortFrom(f.Addr, f.Port), f.Protocol)
}

// largest is the number of bytes of an input, unpacked: 200,000 Services of 10 endpoints.
const largest = 1 << 30

// Read reads the rules of a node, packed with gzip or not. name is the input's, for errors.
func Read(name string, r io.Reader) (*Dump, error) {
	in := bufio.NewReader(r)
	var unpacked io.Reader = in
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		var err error
		if unpacked, err = gzip.NewReader(in); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	text, err := io.ReadAll(io.LimitReader(unpacked, largest+1))
	if err == nil && len(text) > largest {
		err = fmt.Errorf("larger than %d MiB", largest>>20)
	}
	d := &Dump{}
	if err == nil {
		err = d.read(text)
	}
	if err == nil && len(d.Tables) == 0 {
		err = errors.New("no rules: want the output of iptables-save, ip6tables-save, 'nft list ruleset' or 'nft -j list ruleset'; 'iptables -L' and 'iptables -S' lack what is needed")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return d, nil
}

var (
	iptablesTable = regexp.MustCompile(`^\*(nat|filter|mangle|raw|security)$`)
	nftTable      = regexp.MustCompile(`^table (?:(ip|ip6|inet|arp|bridge|netdev) )?(\S+) \{$`)
	handle        = regexp.MustCompile(`\s*# handle \d+$`)
)

// read finds the outputs of tools, and skips all other lines.
func (d *Dump) read(text []byte) error {
	lines := bytes.Split(text, []byte("\n"))
	var header string // the last comment: it names the tool
	skipped, first := 0, 0
	for i := 0; i < len(lines); i++ {
		line := string(bytes.TrimSpace(lines[i]))
		switch {
		case line == "" || line == "COMMIT":
		case line[0] == '#':
			header = line
		case iptablesTable.MatchString(line):
			end := i
			for end < len(lines) && string(bytes.TrimSpace(lines[end])) != "COMMIT" {
				end++
			}
			end = min(end, len(lines)-1)
			d.section(header, lines, i, end)
			i = end
		case nftTable.MatchString(handle.ReplaceAllString(line, "")):
			p := &nftReader{lines: lines, at: i}
			if err := p.table(d); err != nil {
				return err
			}
			i = p.at
		case strings.HasPrefix(line, "{") && bytes.Contains(bytes.Join(lines[i:min(i+3, len(lines))], nil), []byte(`"nftables"`)):
			rest := bytes.Join(lines[i:], []byte("\n"))
			read, err := d.readJSON(rest)
			if err != nil {
				return fmt.Errorf("line %d: JSON of nft: %w", i+1, err)
			}
			i += bytes.Count(rest[:read], []byte("\n"))
		default:
			if skipped++; skipped == 1 {
				first = i + 1
			}
		}
	}
	if skipped > 0 {
		d.Notes = append(d.Notes, fmt.Sprintf("skipped %d lines that belong to no table; the first is line %d: %.60q", skipped, first, bytes.TrimSpace(lines[first-1])))
	}
	if d.Unreadable > 0 {
		d.Notes = append(d.Notes, fmt.Sprintf("%d rules have no readable destination, so their endpoints are not known: iptables-save was older than the iptables that wrote them; use that of the same image or version", d.Unreadable))
	}
	d.ofIptablesNft()
	for i, s := range d.Saved {
		if err := d.parse(s, i); err != nil {
			return err
		}
	}
	return nil
}

// ofIptablesNft marks the tables of iptables-nft in the output of nft, or removes them if iptables-save printed them too.
func (d *Dump) ofIptablesNft() {
	kept, removed := d.Tables[:0], false
	for _, t := range d.Tables {
		t.Partial = t.Family != "" && iptablesTable.MatchString("*"+t.Name)
		if t.Partial && slices.ContainsFunc(d.Saved, func(s *Saved) bool { return s.Family == t.Family }) {
			removed = true
			continue
		}
		kept = append(kept, t)
	}
	d.Tables = kept
	switch {
	case removed:
		d.Notes = append(d.Notes, "skipped tables of iptables-nft in the output of nft: iptables-save has them with all matches")
	case slices.ContainsFunc(kept, func(t *Table) bool { return t.Partial }):
		d.Notes = append(d.Notes, "rules of iptables-nft are counted only: nft does not print their comments, shares and endpoints; add the output of iptables-save")
	}
}

// Lines of rules that only one of iptables and ip6tables prints.
var (
	ofIPv4 = regexp.MustCompile(`-[sd] [0-9]+\.|--reject-with icmp-|--to-destination [0-9]+\.`)
	ofIPv6 = regexp.MustCompile(`-[sd] [0-9a-f]*:|icmp6|ipv6-icmp|--to-destination \[`)
)

// section adds a table of iptables to the output that it belongs to: the last one of its family, unless that has the table. The
// family is that of the header or of the rules. If neither tells, a second table of a name is that of IPv6.
func (d *Dump) section(header string, lines [][]byte, from, to int) {
	name, last := string(bytes.TrimSpace(lines[from]))[1:], map[corev1.IPFamily]*Saved{}
	for _, earlier := range d.Saved {
		last[earlier.Family] = earlier
	}
	has := func(family corev1.IPFamily) bool { return last[family] != nil && last[family].Tables[name] != nil }
	family := corev1.IPv4Protocol
	switch {
	case strings.Contains(header, "by iptables-"):
	case strings.Contains(header, "by ip6tables-") || slices.ContainsFunc(lines[from:to], ofIPv6.Match):
		family = corev1.IPv6Protocol
	case !slices.ContainsFunc(lines[from:to], ofIPv4.Match) && has(family) && !has(corev1.IPv6Protocol):
		family = corev1.IPv6Protocol
	}
	s := last[family]
	if s == nil || has(family) {
		s = &Saved{Family: family, Tables: rule.Tables{}, lines: make([][]byte, len(lines))}
		d.Saved = append(d.Saved, s)
	}
	s.Tables[name] = map[string]*rule.Chain{}
	for i := from; i <= to; i++ {
		s.lines[i] = lines[i]
		if bytes.Count(lines[i], []byte("--to-destination ")) > 1 {
			s.lines[i] = unreadable.ReplaceAll(lines[i], []byte("${1}unreadable"))
			d.Unreadable++
		}
	}
}

// unreadable is what an old iptables prints of the DNAT of a newer one: not the destination that the kernel has.
var unreadable = regexp.MustCompile(`(-j DNAT --to-destination ).*$`)

// parse parses the tables of an output of iptables-save.
func (d *Dump) parse(s *Saved, number int) (err error) {
	if s.Tables, err = rule.ParseTables(s.Family, bytes.Join(s.lines, []byte("\n"))); err != nil {
		return fmt.Errorf("%w; want the whole output of iptables-save, unchanged", err)
	}
	s.lines, s.set = nil, string(s.Family)+" iptables"
	for _, earlier := range d.Saved[:number] {
		if earlier.Family == s.Family {
			s.set += ", another output"
		}
	}
	d.add(s.set, s.Family, s.Tables)
	return nil
}

// add adds tables of iptables.
func (d *Dump) add(set string, family corev1.IPFamily, tables rule.Tables) {
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		t := &Table{Set: set, Name: name, Family: family, Chains: map[string]*Chain{}}
		for chain, c := range tables[name] {
			to := &Chain{Name: chain, Base: c.Policy != "-", Rules: make([]Rule, len(c.Rules))}
			for i := range c.Rules {
				to.Rules[i] = ofIptables(chain, &c.Rules[i])
			}
			t.Chains[chain] = to
		}
		d.Tables = append(d.Tables, t)
	}
}

// ofIptables converts a rule of iptables.
func ofIptables(chain string, r *rule.Rule) Rule {
	to := Rule{Text: r.Line(chain), Comment: r.Comment()}
	if r.Target.Kind == rule.TargetJump {
		to.Jumps = []string{r.Target.Chain}
	}
	if r.Target.Kind == rule.TargetDNAT || strings.HasPrefix(r.Target.Words, "DNAT ") {
		to.To = []netip.AddrPort{r.Target.To} // the zero value: not readable
	}
	for i := range r.Matches {
		switch m := &r.Matches[i]; m.Kind {
		case rule.MatchRandom:
			to.Share = float64(m.Bits) / rule.ProbabilityUnit
		case rule.MatchRecent:
			to.sticky = to.sticky || m.Bits&rule.RecentCheck != 0
		}
	}
	if r.DstPorts.First != 0 && r.DstPorts.First == r.DstPorts.Last && r.Not&(rule.NotDst|rule.NotDstPorts|rule.NotProto) == 0 && (!r.Dst.IsValid() || r.Dst.IsSingleIP()) {
		to.Front = &Frontend{Addr: r.Dst.Addr(), Protocol: r.Proto.String(), Port: r.DstPorts.First}
		if chain == "KUBE-NODEPORTS" { // with another address than that of a node, it is a restriction of the port
			to.Front.Addr = netip.Addr{}
		}
	}
	return to
}

// ownerOf returns the owner of a rule: of its chain, or of the chain that it jumps to from a base chain, or by its comment.
func (t *Table) ownerOf(c *Chain, r *Rule) string {
	is := owner.Of(t.Name, c.Name)
	for _, to := range r.Jumps {
		if is == owner.Others && c.Base {
			is = owner.Of(t.Name, to)
		}
	}
	if is == owner.Others && c.Base {
		is = owner.OfComment(r.Comment)
	}
	return is
}
