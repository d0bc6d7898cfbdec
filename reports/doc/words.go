package doc

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// JoinWords writes "a", "a and b" or "a, b and c".
func JoinWords(words []string) string {
	switch n := len(words); n {
	case 0:
		return ""
	case 1:
		return words[0]
	default:
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
}

// Plural writes "1 change" or "2,000 changes".
func Plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%s %ss", Grouped(int64(n)), word)
}

// UpperFirst makes the first letter a capital.
func UpperFirst(text string) string {
	_, size := utf8.DecodeRuneInString(text)
	return strings.ToUpper(text[:size]) + text[size:]
}

// LowerFirst makes the first letter small. Abbreviations stay as they are.
func LowerFirst(text string) string {
	r := []rune(text)
	if len(r) < 2 || strings.ToUpper(string(r[:2])) == string(r[:2]) {
		return text
	}
	return strings.ToLower(string(r[:1])) + string(r[1:])
}

var (
	beforeUnit = regexp.MustCompile(`([0-9]) (s|ms|µs|ns|%|[KMG]iB|[0-9])`)
	besideSign = strings.NewReplacer("± ", "±\u00a0", "≤ ", "≤\u00a0", " *", "\u00a0*")
)

// Unparted puts non-breaking spaces between a number and its unit, and after a sign.
func Unparted(text string) string {
	return besideSign.Replace(beforeUnit.ReplaceAllString(text, "$1\u00a0$2"))
}

// plain replaces non-breaking spaces, which are for pages.
func plain(text string) string { return strings.ReplaceAll(text, "\u00a0", " ") }

// Shorten cuts the middle out of a text that is too long.
func Shorten(text string, width int) string {
	r := []rune(text)
	if len(r) <= width {
		return text
	}
	head := (width - 1) / 2
	return string(r[:head]) + "…" + string(r[len(r)-(width-1-head):])
}

// Wrap breaks a text at spaces. Lines after the first start with indent.
func Wrap(text string, width int, indent string) string {
	var b strings.Builder
	used := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case used+1+utf8.RuneCountInString(word) > width:
			b.WriteString("\n" + indent)
			used = utf8.RuneCountInString(indent)
		default:
			b.WriteString(" ")
			used++
		}
		b.WriteString(word)
		used += utf8.RuneCountInString(word)
	}
	return b.String()
}
