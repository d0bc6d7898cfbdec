package rule

import (
	"errors"
	"slices"
	"strings"
)

// extension is a match or a target in a rule.
type extension struct {
	name   string
	target bool
	goTo   bool // -g: a chain
	*syntax
}

// syntax is an extension with fields. An extension without a syntax is foreign, or a chain.
type syntax struct {
	options map[string]arguments // that have fields
	match   func(p *Parser, extension int) (Match, error)
	target  func(p *Parser, extension int) (Target, error)
}

// arguments of an option with a field.
type arguments struct {
	count      int
	invertible bool
}

var (
	flag       = arguments{0, false}
	invertFlag = arguments{0, true}
	one        = arguments{1, false}
	invertOne  = arguments{1, true}
)

var ports = &syntax{map[string]arguments{"--sport": invertOne, "--dport": invertOne}, (*Parser).ports, nil}

var matches = map[string]*syntax{
	"comment":   {map[string]arguments{"--comment": one}, (*Parser).comment, nil},
	"nfacct":    {map[string]arguments{"--nfacct-name": one}, (*Parser).accounting, nil},
	"tcp":       ports,
	"udp":       ports,
	"sctp":      ports,
	"addrtype":  {map[string]arguments{"--src-type": invertOne, "--dst-type": invertOne}, (*Parser).addrtype, nil},
	"conntrack": {map[string]arguments{"--ctstate": invertOne}, (*Parser).states, nil},
	"mark":      {map[string]arguments{"--mark": invertOne}, (*Parser).mark, nil},
	"statistic": {map[string]arguments{"--mode": one, "--probability": invertOne}, (*Parser).random, nil},
	"recent": {map[string]arguments{
		"--set": invertFlag, "--rcheck": invertFlag, "--seconds": one, "--reap": flag, "--name": one, "--mask": one, "--rsource": flag,
	}, (*Parser).recent, nil},
	"bpf": {map[string]arguments{"--bytecode": one}, (*Parser).program, nil},
}

var targets = map[string]*syntax{
	"ACCEPT": verdict(TargetAccept),
	"DROP":   verdict(TargetDrop),
	"RETURN": verdict(TargetReturn),
	"REJECT": {map[string]arguments{"--reject-with": one}, nil, (*Parser).reject},
	"MARK":   {map[string]arguments{"--set-xmark": one, "--or-mark": one, "--xor-mark": one}, nil, (*Parser).setMark},
	"DNAT":   {map[string]arguments{"--to-destination": one}, nil, (*Parser).dnat},
	"MASQUERADE": {map[string]arguments{"--random-fully": flag}, nil, func(p *Parser, i int) (Target, error) {
		return Target{Kind: TargetMasquerade, RandomFully: p.find(i, "--random-fully") != nil}, nil
	}},
}

func verdict(kind TargetKind) *syntax {
	return &syntax{target: func(*Parser, int) (Target, error) { return Target{Kind: kind}, nil }}
}

// foreignTargets are the other targets of iptables. All other names are chains.
var foreignTargets = strings.Fields(`AUDIT CHECKSUM CLASSIFY CLUSTERIP CONNMARK CONNSECMARK CT DNPT DSCP ECN HL HMARK IDLETIMER
	LED LOG NETMAP NFLOG NFQUEUE NOTRACK QUEUE RATEEST REDIRECT SECMARK SET SNAT SNPT SYNPROXY TCPMSS TCPOPTSTRIP TEE TOS TPROXY
	TRACE TTL ULOG`)

// option is an option of an extension. Its name is words[at], its arguments are the words from there to end.
type option struct {
	extension int
	name      string
	not       bool
	typed     bool // there is a field for it
	at, end   int
}

// load adds the extension of -m, -j or -g.
func (p *Parser) load(how string, not bool) error {
	if not {
		return errNotInverted
	}
	name, err := p.value()
	if err != nil {
		return err
	}
	if how == "-m" {
		p.extensions = append(p.extensions, extension{name: name, syntax: matches[name]})
		return checkName(name)
	}
	if slices.ContainsFunc(p.extensions, func(x extension) bool { return x.target }) {
		return errors.New("a second target")
	}
	x := extension{name: name, target: true, goTo: how == "-g"}
	if !x.goTo {
		x.syntax = targets[name]
	}
	p.extensions = append(p.extensions, x)
	return checkChain(name)
}

// extensionOption reads an option of an extension. Each option with a field belongs to the extension that has it. Every
// other option belongs to the extension before it.
func (p *Parser) extensionOption(name string, not bool) error {
	last := len(p.extensions) - 1
	if last < 0 || p.extensions[last].goTo || !strings.HasPrefix(name, "-") {
		return errors.New("not an option of a rule, and no extension has it")
	}
	o := option{extension: last, name: name, not: not, at: p.at - 1}
	for i := last; i >= 0 && p.extensions[i].syntax != nil && !o.typed; i-- {
		if a, has := p.extensions[i].options[name]; has {
			if not && !a.invertible {
				return errNotInverted
			}
			if p.find(i, name) != nil {
				return errTwice
			}
			o.extension, o.typed, p.at = i, true, p.at+a.count
		}
	}
	for !o.typed && p.at < len(p.words) && !isOption(p.words[p.at].raw) {
		p.at++
	}
	if p.at > len(p.words) {
		return errNoValue
	}
	o.end = p.at
	p.options = append(p.options, o)
	return nil
}

// isOption reports whether a word ends the arguments of an option whose number of arguments is not known.
func isOption(raw string) bool { return raw == "!" || len(raw) > 1 && raw[0] == '-' }

// find returns an option of an extension; nil: it was not given.
func (p *Parser) find(extension int, name string) *option {
	for i := range p.options {
		if o := &p.options[i]; o.extension == extension && o.name == name {
			return o
		}
	}
	return nil
}

// only returns the argument of an option that the extension needs.
func (p *Parser) only(extension int, name string) (text string, not bool, err error) {
	o := p.find(extension, name)
	if o == nil {
		return "", false, errors.New("no " + name)
	}
	return p.words[o.at+1].value, o.not, nil
}

// known reports whether all options of an extension have fields.
func (p *Parser) known(extension int) bool {
	return p.extensions[extension].syntax != nil &&
		!slices.ContainsFunc(p.options, func(o option) bool { return o.extension == extension && !o.typed })
}

// foreign returns an extension with its options, as spelled.
func (p *Parser) foreign(extension int) string {
	var b strings.Builder
	b.WriteString(p.extensions[extension].name)
	for i := range p.options {
		o := &p.options[i]
		if o.extension != extension {
			continue
		}
		if o.not {
			b.WriteString(" !")
		}
		for _, w := range p.words[o.at:o.end] {
			b.WriteByte(' ')
			b.WriteString(w.raw)
		}
	}
	return b.String()
}
