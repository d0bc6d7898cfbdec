package doc

import (
	"regexp"
	"strings"
	"unicode"
)

// Names in a document are often of others: of scenarios, subjects, Services, machines, kernels. In no output may they be
// more than text.

// Visible replaces control characters, and those that change the direction or hide: a reader sees that something is there.
func Visible(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return r
		case unicode.IsControl(r), r == '\u061c', '\u200b' <= r && r <= '\u200f', '\u2028' <= r && r <= '\u202e', '\u2060' <= r && r <= '\u206f', r == '\ufeff':
			return '�'
		}
		return r
	}, text)
}

// Between these, Markdown shows a text as code: Span writes them. They are private characters, which no font shows.
const spanBegin, spanEnd = "\ue000", "\ue001"

// Span marks a part of a text for Markdown to show as code.
func Span(text string) string { return spanBegin + text + spanEnd }

// linked are words that GitHub makes links, references or pictures of, wherever they are but in code: addresses of pages and
// mail, commits, GH-1, owner/repository#1, :emoji:. The brackets and stops around a word are not of it.
var linked = regexp.MustCompile(`(?i)[^\s(]*(://|\bwww\.|[\w.+-]@[\w-]|\bgh-[0-9]|\b[0-9a-f]{7,40}\b|:[a-z0-9_+-]*[a-z0-9][a-z0-9_+-]*:|\w#[0-9])(\S*[^\s).,;])?`)

// first is what makes a line a heading, a list, a quote, a rule, code or a part of a heading above.
var first = regexp.MustCompile(`^([#>=|+-]|[0-9]+[.)])`)

// mark writes a text on one line of Markdown, where begins says that it is the first of its line.
func mark(text string, begins bool) string {
	text = strings.Join(strings.Fields(text), " ")
	var out strings.Builder
	for rest := text; rest != ""; {
		plain, code := rest, ""
		before, after, found := strings.Cut(rest, spanBegin)
		if rest = ""; found {
			plain = before
			code, rest, _ = strings.Cut(after, spanEnd)
		}
		for begin := 0; ; {
			at := linked.FindStringIndex(plain[begin:])
			if at == nil {
				escape(&out, []rune(plain[begin:]))
				break
			}
			escape(&out, []rune(plain[begin:begin+at[0]]))
			out.WriteString(codeSpan(plain[begin+at[0] : begin+at[1]]))
			begin += at[1]
		}
		if code != "" {
			out.WriteString(codeSpan(code))
		}
	}
	line := out.String()
	if begins && first.MatchString(line) {
		line = first.ReplaceAllStringFunc(line, func(s string) string { return s[:len(s)-1] + `\` + s[len(s)-1:] })
	}
	return line
}

// escape writes a text without the meanings that it has for GitHub in the middle of a line. An empty comment ends mentions
// and references, which GitHub looks for in the finished text. An underscore within a word means nothing.
func escape(out *strings.Builder, text []rune) {
	word := func(i int) bool {
		return i >= 0 && i < len(text) && (unicode.IsLetter(text[i]) || unicode.IsDigit(text[i]))
	}
	for i, r := range text {
		switch {
		case r == '<':
			out.WriteString("&lt;")
		case r == '&' && (word(i+1) || i+1 < len(text) && text[i+1] == '#'):
			out.WriteString("&amp;")
		case strings.ContainsRune("\\`*[~$", r), r == '_' && !(word(i-1) && word(i+1)):
			out.WriteRune('\\')
			out.WriteRune(r)
		case r == '@' && !word(i-1) && word(i+1), r == '#' && word(i+1):
			out.WriteRune(r)
			out.WriteString("<!-- -->")
		default:
			out.WriteRune(r)
		}
	}
}

// codeSpan is a text between more backticks than it has in a row.
func codeSpan(text string) string {
	fence := strings.Repeat("`", 1+longest(text))
	if strings.HasPrefix(text, "`") || strings.HasSuffix(text, "`") {
		text = " " + text + " "
	}
	return fence + text + fence
}

// longest is the largest number of backticks in a row.
func longest(text string) (most int) {
	for _, run := range regexp.MustCompile("`+").FindAllString(text, -1) {
		most = max(most, len(run))
	}
	return most
}
