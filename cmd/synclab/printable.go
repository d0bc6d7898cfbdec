package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"
)

// printable is a writer for people: names in manifests, scenarios and records may hold what steers a terminal, and that is
// written out, as in JSON: \u001b. Several goroutines may write.
type printable struct {
	w io.Writer

	mu   sync.Mutex
	rest []byte // the beginning of a character
}

func (p *printable) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text, out := append(p.rest, b...), make([]byte, 0, len(b))
	for len(text) > 0 && utf8.FullRune(text) {
		r, size := utf8.DecodeRune(text)
		out = appendPrintable(out, r, text[:size])
		text = text[size:]
	}
	p.rest = slices.Clone(text)
	if _, err := p.w.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

func appendPrintable(out []byte, r rune, encoded []byte) []byte {
	switch {
	case r == utf8.RuneError && len(encoded) == 1:
		return fmt.Appendf(out, `\x%02x`, encoded[0])
	case r == '\n', r == '\t', unicode.IsGraphic(r):
		return append(out, encoded...)
	case r > 0xffff:
		high, low := utf16.EncodeRune(r)
		return fmt.Appendf(out, `\u%04x\u%04x`, high, low)
	}
	return fmt.Appendf(out, `\u%04x`, r)
}

// verbatim returns the writer behind w if that is not a terminal: data for another program must stay as it is.
func verbatim(w io.Writer) io.Writer {
	p, isPrintable := w.(*printable)
	if !isPrintable {
		return w
	}
	if f, isFile := p.w.(*os.File); isFile && !term.IsTerminal(int(f.Fd())) {
		return f
	}
	return w
}

// printableText is the same for a text.
func printableText(text string) string {
	var out strings.Builder
	_, _ = (&printable{w: &out}).Write([]byte(text))
	return out.String()
}
