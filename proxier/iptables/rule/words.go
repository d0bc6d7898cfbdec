package rule

import (
	"errors"
	"fmt"
)

// word is one word of a line.
type word struct {
	raw   string // as spelled
	value string // without quotes and escapes
}

var errQuote = errors.New("unbalanced quote")

// splitWords appends the words of a line. It splits as iptables-restore does: a quote may begin within a word, and the
// closing quote ends the word.
func splitWords(words []word, line string) ([]word, error) {
	for i := 0; i < len(line); {
		if line[i] == ' ' || line[i] == '\t' {
			i++
			continue
		}
		w, end, err := nextWord(line, i)
		if err != nil {
			return words, err
		}
		words, i = append(words, w), end
	}
	return words, nil
}

// nextWord returns the word that begins at an index, and the index after it.
func nextWord(line string, start int) (w word, end int, err error) {
	i := start
	for ; i < len(line) && line[i] != ' ' && line[i] != '\t'; i++ {
		switch c := line[i]; {
		case c == '"':
			text, end, err := unquote(line, i+1)
			if i > start {
				text = line[start:i] + text
			}
			return word{line[start:end], text}, end, err
		case c < ' ' || c == 0x7f:
			return word{}, i, fmt.Errorf("control character %q", c)
		}
	}
	return word{line[start:i], line[start:i]}, i, nil
}

// unquote returns the text up to the closing quote, and the index after the quote. After a backslash, any character
// stands for itself.
func unquote(line string, start int) (text string, end int, err error) {
	var b []byte // stays nil without a backslash
	for i := start; i < len(line); i++ {
		switch c := line[i]; {
		case c == '"' && b == nil:
			return line[start:i], i + 1, nil
		case c == '"':
			return string(b), i + 1, nil
		case c == '\n':
			return "", i, errQuote
		case c == '\\':
			if b == nil {
				b = append([]byte{}, line[start:i]...)
			}
			if i++; i == len(line) || line[i] == '\n' {
				return "", i, errQuote
			}
			b = append(b, line[i])
		case b != nil:
			b = append(b, c)
		}
	}
	return "", len(line), errQuote
}

// appendQuoted appends a text as xtables_save_string prints it.
func appendQuoted(b []byte, text string) []byte {
	if bare(text) {
		return append(b, text...)
	}
	b = append(b, '"')
	for i := range len(text) {
		switch c := text[i]; c {
		case '"', '\\', '\'':
			b = append(b, '\\', c)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// bare reports whether iptables prints a text without quotes.
func bare(text string) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return text != ""
}

// checkName refuses names that the tools print without quotes although they would need them.
func checkName(name string) error {
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c == '"' || c == 0x7f {
			return fmt.Errorf("%q is not a name", name)
		}
	}
	if name == "" {
		return errors.New("empty name")
	}
	return nil
}

// checkChain refuses chain names that iptables refuses too.
func checkChain(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if name[0] == '-' || name[0] == '!' {
		return fmt.Errorf("chain %q begins with %q", name, name[0])
	}
	return nil
}
