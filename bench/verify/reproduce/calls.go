package reproduce

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Records are data: they may have been written by hand. A command that is run here comes from them only if it is one that the
// lab itself can have kept, with an input that makes the tool do nothing but change tables of its own namespace.

var (
	tools = regexp.MustCompile(`^(ip6?tables(-legacy|-nft)?-restore|nft)$`)
	// restoreWords and nftWords are the arguments with which proxies write rules from their standard input.
	restoreWords = regexp.MustCompile(`^(-n|--noflush|-c|--counters|-v|--verbose|-w|-W|--wait|--wait-interval|(--wait=|--wait-interval=|-w|-W)?[0-9]{1,9}|-T|--table|nat|filter|mangle|raw)$`)
	nftWords     = regexp.MustCompile(`^(-f|--file|-|/dev/stdin|-j|--json|-a|--handle|-e|--echo)$`)
)

// parseCall returns the words of a kept command line. They need no quotes in a shell.
func parseCall(line string) ([]string, error) {
	words := strings.Split(line, " ")
	allowed := restoreWords
	if words[0] == "nft" {
		allowed = nftWords
	}
	strange := slices.ContainsFunc(words[1:], func(word string) bool { return !allowed.MatchString(word) })
	if !tools.MatchString(words[0]) || strange {
		return nil, fmt.Errorf("the command %q is none that Synclab keeps: it is not run, nor written into a script", line)
	}
	return words, nil
}

// include matches a statement of nft that reads another file.
var include = regexp.MustCompile(`(^|[\s;{}])include(\s|\\\n)*["'/.*]`)

// longestLine is the size in bytes of the longest line that iptables-restore reads at once. The rest would be a line of its
// own, whose first word may be in quotes here.
const longestLine = 10_000

// checkInput reports an input that makes a tool read another file, or start another program.
func checkInput(tool string, input []byte) error {
	if bytes.IndexByte(input, 0) >= 0 {
		return errors.New("it has a zero byte")
	}
	if tool == "nft" {
		if at := include.FindIndex(input); at != nil {
			return fmt.Errorf("line %d: it includes another file", 1+bytes.Count(input[:at[1]], []byte("\n")))
		}
		return nil
	}
	for i, line := range bytes.Split(input, []byte("\n")) {
		if len(line) > longestLine {
			return fmt.Errorf("line %d has %d bytes: %s takes what follows %d as another line", i+1, len(line), tool, longestLine)
		}
		for _, word := range wordsOf(string(line)) {
			if !plainOption(word) {
				return fmt.Errorf("line %d: option %q is none of a proxier: it may load a program", i+1, word)
			}
		}
	}
	return nil
}

// plainOption reports whether a word is no option, or one that starts no program. -M and --modprobe, also shortened and
// behind other letters, name a program that iptables-restore runs to load a module.
func plainOption(word string) bool {
	name, long := strings.CutPrefix(word, "--")
	name, _, _ = strings.Cut(name, "=")
	switch {
	case long:
		return len(name) < 2 || !strings.HasPrefix("modprobe", name)
	case strings.HasPrefix(word, "-"):
		return len(word) <= 2 && word != "-M"
	}
	return true
}

// wordsOf splits a line as iptables-restore does: double quotes keep blanks, and a backslash in them the next character.
func wordsOf(line string) (words []string) {
	var word strings.Builder
	quoted, escaped, begun := false, false, false
	for _, c := range line {
		switch {
		case escaped:
			escaped = false
			word.WriteRune(c)
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted, begun = !quoted, true
		case !quoted && (c == ' ' || c == '\t' || c == '\r'):
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			begun = true
			word.WriteRune(c)
		}
	}
	if begun {
		words = append(words, word.String())
	}
	return words
}
