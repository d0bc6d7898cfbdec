package capture

import (
	"cmp"
	"io"
	"regexp"
	"strings"

	"synclab/sim"
)

// chains are names of chains that are hashes of a Service's name: who guesses the name could check it.
const chains category = "CHAIN"

// inText finds, in this order: an IPv4 or IPv6 address or range, but no port behind it; the hash in a chain's name, of iptables and
// of nf_tables; a Service as namespace/name, which may be cut off at its end, with or without its port.
var inText = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+(?:/(?:3[0-2]|[12]?\d)\b)?|[0-9a-f]*:[0-9a-f]*:[0-9a-f:.]*(?:/(?:12[0-8]|1[01]\d|\d?\d)\b)?|` +
	`\b[A-Z2-7]{16}\b|\b((?:service|local|external|firewall|endpoint|affinity)-)([A-Z2-7]{8})\b|` +
	`\b([a-z0-9][-a-z0-9]*)/([a-z0-9][-a-z0-9.]*)(?:(:|/(?:tcp|udp|sctp)/)([-a-z0-9]*))?`)

// AnonymizeTexts replaces addresses, ranges, hashes of chains, and the namespaces, names and port names of Services in texts, as
// Anonymize does: equal ones stay equal, nothing can reverse it. visit is called twice, and must pass the same texts to replace
// both times; the second time, replace returns the replacements.
func AnonymizeTexts(random io.Reader, visit func(replace func(text string) string)) error {
	a, err := newAnonymizer(random)
	if err != nil {
		return err
	}
	one := func(found string) string {
		m := inText.FindStringSubmatch(found)
		switch _, isRange := parseRange(found); {
		case isRange:
			return a.cidr(found)
		case m[3] != "":
			return a.name(namespaces, m[3]) + "/" + a.inNamespace(services, m[3], m[4]) + m[5] + a.name(portNames, m[6])
		case m[2] != "":
			return m[1] + a.name(chains, m[2])
		case !strings.ContainsAny(found, ".:"):
			return a.name(chains, found)
		}
		return cmp.Or(a.address(found, nil), found)
	}
	replace := func(text string) string {
		if replaced := inText.ReplaceAllStringFunc(text, one); a.drawn {
			return replaced
		}
		return text
	}
	visit(replace)
	if err := a.draw(&sim.Objects{}); err != nil {
		return err
	}
	visit(replace)
	return nil
}
