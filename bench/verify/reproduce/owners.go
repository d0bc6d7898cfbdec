package reproduce

import (
	"bytes"
	"regexp"
	"slices"
)

// A rule that belongs to a Service names it in a comment, in the name of its chain (nftables: service-HASH-ns/name/…), or is
// in a chain with a hash that a rule of the Service jumps to (iptables).
var (
	inComment = regexp.MustCompile(`comment "([^"\s:/]+/[^"\s:/]+)[:" ]`)
	inName    = regexp.MustCompile(`-[A-Z2-7]{8}-([^\s/]+/[^\s/]+)/`)
	hashed    = regexp.MustCompile(`KUBE-[A-Z]+-[A-Z2-7]{16}`)
	chainOf   = regexp.MustCompile(`^(?::|-[AINX] )(KUBE-[A-Z]+-[A-Z2-7]{16})`)
)

// line is a line of an input.
type line struct {
	text  []byte
	owner int // the index of its Service, in the order of appearance; -1: of no single Service
	kind  string
}

// readLines finds the Service and the kind of each line.
func readLines(input []byte) (lines []line, owners int) {
	numbers := map[string]int{}
	number := func(name []byte) int {
		n, ok := numbers[string(name)]
		if !ok {
			n = len(numbers)
			numbers[string(name)] = n
		}
		return n
	}
	for text := range bytes.Lines(input) {
		l := line{text: text, owner: -1, kind: kindOf(text)}
		if m := inName.FindSubmatch(text); m != nil {
			l.owner = number(m[1])
		} else if m := inComment.FindSubmatch(text); m != nil {
			l.owner = number(m[1])
		}
		lines = append(lines, l)
	}
	chains := map[string]int{} // owners of chains
	for changed := true; changed; {
		changed = false
		for i := range lines {
			l := &lines[i]
			if own := chainOf.FindSubmatch(l.text); own != nil && l.owner < 0 {
				if owner, ok := chains[string(own[1])]; ok {
					l.owner, changed = owner, true
				}
			}
			if l.owner < 0 {
				continue
			}
			for _, chain := range hashed.FindAll(l.text, -1) {
				if _, ok := chains[string(chain)]; !ok {
					chains[string(chain)], changed = l.owner, true
				}
			}
		}
	}
	return lines, len(numbers)
}

// masks turn a line into its kind: what differs between Services becomes the same.
var masks = []struct {
	of *regexp.Regexp
	by string
}{
	{regexp.MustCompile(`"[^"]*"`), `""`},
	{regexp.MustCompile(`-[A-Z2-7]{8}-[^\s]+`), "-*"},
	{regexp.MustCompile(`[A-Z2-7]{16}`), "*"},
	{regexp.MustCompile(`[0-9a-f]*[0-9:.][0-9a-f:./]*`), "0"},
}

func kindOf(text []byte) string {
	for _, m := range masks {
		text = m.of.ReplaceAll(text, []byte(m.by))
	}
	const most = 120 // lines with lists of endpoints differ in their length
	return string(text[:min(len(text), most)])
}

// first returns the input of the first Services, without some kinds of lines.
func first(lines []line, services int, without []string) []byte {
	var out []byte
	for _, l := range lines {
		if l.owner < services && !slices.Contains(without, l.kind) {
			out = append(out, l.text...)
		}
	}
	return out
}
