package inspect

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/internal/inet"
)

// nftReader reads a table as nft prints it. It knows the blocks, and of rules only verdicts, maps and translated destinations.
type nftReader struct {
	lines [][]byte
	at    int
}

// newTable adds a table of nf_tables.
func (d *Dump) newTable(family, name string) *Table {
	if family == "" {
		family = "ip"
	}
	t := &Table{Set: "nftables", Name: name, Family: map[string]corev1.IPFamily{"ip": corev1.IPv4Protocol, "ip6": corev1.IPv6Protocol}[family], Chains: map[string]*Chain{}}
	t.Set = cmp.Or(string(t.Family), family) + " " + t.Set
	d.Tables = append(d.Tables, t)
	return t
}

// statement returns the next line, and the lines after it until its braces are closed, unless it only opens a block.
func (p *nftReader) statement() (string, error) {
	p.at++
	start, text, open := p.at, "", 0
	for ; p.at < len(p.lines); p.at++ {
		line := strings.TrimSpace(handle.ReplaceAllString(string(bytes.TrimSpace(p.lines[p.at])), ""))
		opened, closed := braces(line)
		if open += opened - closed; text != "" {
			text += " "
		}
		if text += line; open <= 0 || start == p.at && strings.HasSuffix(line, " {") && block.MatchString(line) {
			return text, nil
		}
	}
	return "", fmt.Errorf("line %d: the output of nft ends within a block: want the whole output", min(start+1, len(p.lines)))
}

// braces counts braces outside of quotes.
func braces(text string) (opened, closed int) {
	for i, part := range strings.Split(text, `"`) {
		if i%2 == 0 {
			opened, closed = opened+strings.Count(part, "{"), closed+strings.Count(part, "}")
		}
	}
	return opened, closed
}

var block = regexp.MustCompile(`^(chain|map|set|flowtable|counter|quota|limit|secmark|synproxy|ct [a-z]+) (\S+) \{$`)

// table reads a table. After it, at is the line of its end.
func (p *nftReader) table(d *Dump) error {
	m := nftTable.FindStringSubmatch(handle.ReplaceAllString(string(bytes.TrimSpace(p.lines[p.at])), ""))
	return p.block(d.newTable(m[1], m[2]), "table", "")
}

// block reads a table, or a block within one.
func (p *nftReader) block(t *Table, kind, name string) error {
	c := &Chain{Name: name}
	if kind == "chain" {
		t.Chains[name] = c
	}
	for {
		text, err := p.statement()
		if err != nil || text == "}" {
			return err
		}
		word, rest, _ := strings.Cut(text, " ")
		switch m := block.FindStringSubmatch(text); {
		case m != nil:
			if err := p.block(t, m[1], m[2]); err != nil {
				return err
			}
		case text == "" || word == "comment" || word == "#":
		case kind == "chain" && word == "type":
			c.Base = true
		case kind == "chain":
			c.Rules = append(c.Rules, ofNft(text))
		case word == "type" && (kind == "map" || kind == "set"):
			if t.Maps++; strings.HasSuffix(rest, ": verdict") {
				c.Name = "@" + name
				t.Chains[c.Name] = c
			}
		case word == "elements":
			for element := range elements(strings.TrimSuffix(strings.TrimPrefix(rest, "= {"), "}")) {
				if t.Elements++; c.isMap() {
					c.Rules = append(c.Rules, ofElement(element))
				}
			}
		}
	}
}

// elements yields the elements of a list.
func elements(list string) iter.Seq[string] {
	return func(yield func(string) bool) {
		quoted, from := false, 0
		for i := 0; i <= len(list); i++ {
			switch {
			case i < len(list) && list[i] == '"':
				quoted = !quoted
			case i == len(list) || list[i] == ',' && !quoted:
				if text := strings.TrimSpace(list[from:i]); text != "" && !yield(text) {
					return
				}
				from = i + 1
			}
		}
	}
}

// Of each, the first spelling is that of nft, the second that of nft -j.
var (
	verdict   = regexp.MustCompile(`\b(?:jump|goto)(?: "?|":\{"target":")([^\s",}]+)`)
	lookup    = regexp.MustCompile(`\bvmap (@\S+)|"data":"(@[^"]+)"`)
	translate = regexp.MustCompile(`\bdnat (?:ip6? )?to (\[[0-9a-f:.]+\]|[0-9.]+):(\d+)|"addr":"([0-9a-f:.]+)"(?:,"family":"[^"]*")?,"port":(\d+)`)
	pair      = regexp.MustCompile(`: ([0-9a-f:.]+) \. (\d+)|,\{"concat":\["([0-9a-f:.]+)",(\d+)\]\}`)
	slots     = regexp.MustCompile(`numgen random mod (\d+)|"mod":(\d+)`)
	quoted    = regexp.MustCompile(`\bcomment "([^"]*)"|"comment":"([^"]*)"|/\* (.*?) \*/`)
	counters  = regexp.MustCompile(`counter packets \d+ bytes \d+ ?|,?\{"counter":\{[^}]*\}\}`)
	concat    = regexp.MustCompile(`"concat":\["?([^",]+)"?,"?([^",]+)"?(?:,"?([^",\]]+)"?)?\]`)
)

// parts returns the parts of each match that a spelling has.
func parts(of *regexp.Regexp, text string) (all [][]string) {
	for _, m := range of.FindAllStringSubmatch(text, -1) {
		all = append(all, slices.DeleteFunc(m[1:], func(part string) bool { return part == "" }))
	}
	return all
}

// ofNft reads a rule.
func ofNft(text string) Rule {
	r := Rule{Text: counters.ReplaceAllString(text, "")}
	for _, m := range append(parts(verdict, text), parts(lookup, text)...) {
		r.Jumps = append(r.Jumps, m[0])
	}
	if strings.Contains(text, "dnat") {
		for _, m := range append(parts(translate, text), parts(pair, text)...) {
			addr, ok := inet.ParseAddr(strings.Trim(m[0], "[]"))
			if port, err := strconv.ParseUint(m[1], 10, 16); ok && err == nil {
				r.To = append(r.To, netip.AddrPortFrom(addr, uint16(port)))
			}
		}
	}
	for _, m := range parts(slots, text) {
		r.Slots, _ = strconv.Atoi(m[0])
	}
	for _, m := range parts(quoted, text) {
		r.Comment = append(m, "")[0]
	}
	return r
}

// ofElement reads an element of a map with verdicts: its key is an address, a protocol and a port, or the last two.
func ofElement(text string) Rule {
	r := ofNft(text)
	key, _, _ := strings.Cut(text, " : ")
	key, _, _ = strings.Cut(key, " comment ")
	words := strings.Split(key, " . ")
	if m := parts(concat, text); m != nil {
		words = m[0]
	}
	n := len(words)
	if n != 2 && n != 3 {
		return r
	}
	port, err := strconv.ParseUint(words[n-1], 10, 16)
	addr, ok := inet.ParseAddr(words[0])
	if err == nil && ok == (n == 3) {
		r.Front = &Frontend{Addr: addr, Protocol: words[n-2], Port: uint16(port)}
	}
	return r
}

// nftObject is one object of nft -j.
type nftObject struct {
	Family, Table, Name, Chain, Hook, Comment string
	Map                                       any // of a map: the type of its values
	Elem                                      []json.RawMessage
	Expr                                      json.RawMessage
}

// readJSON reads the output of nft -j. It returns the number of bytes that it read.
func (d *Dump) readJSON(text []byte) (int64, error) {
	var all struct{ Nftables []map[string]json.RawMessage }
	decoder := json.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&all); err != nil {
		return 0, err
	}
	tables := map[[2]string]*Table{}
	for _, object := range all.Nftables {
		for kind, raw := range object {
			var o nftObject
			if kind == "metainfo" {
				continue
			}
			if err := json.Unmarshal(raw, &o); err != nil {
				return 0, fmt.Errorf("%s %.80s: %w", kind, raw, err)
			}
			if kind == "table" {
				tables[[2]string{o.Family, o.Name}] = d.newTable(o.Family, o.Name)
			} else if t := tables[[2]string{o.Family, o.Table}]; t == nil || kind == "rule" && t.Chains[o.Chain] == nil {
				return 0, fmt.Errorf("%s %s: table %s %s or chain %s is not there before it", kind, o.Name, o.Family, o.Table, o.Chain)
			} else {
				t.object(kind, &o)
			}
		}
	}
	return decoder.InputOffset(), nil
}

// object adds an object to its table.
func (t *Table) object(kind string, o *nftObject) {
	compact := func(raw json.RawMessage) string {
		var text bytes.Buffer
		_ = json.Compact(&text, raw) // it is a part of JSON that was read
		return text.String()
	}
	switch kind {
	case "chain":
		t.Chains[o.Name] = &Chain{Name: o.Name, Base: o.Hook != ""}
	case "rule":
		r := ofNft(compact(o.Expr))
		r.Comment = o.Comment
		t.Chains[o.Chain].Rules = append(t.Chains[o.Chain].Rules, r)
	case "map", "set":
		t.Maps, t.Elements = t.Maps+1, t.Elements+len(o.Elem)
		if o.Map != "verdict" {
			return
		}
		c := &Chain{Name: "@" + o.Name}
		for _, e := range o.Elem {
			c.Rules = append(c.Rules, ofElement(compact(e)))
		}
		t.Chains[c.Name] = c
	}
}
