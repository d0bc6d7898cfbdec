package terminal

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

// Printable is a writer for terminals. Names in manifests, scenarios and records may contain control characters. It
// writes them as in JSON: \u001b. It is safe for concurrent use.
type Printable struct {
	W io.Writer

	mu   sync.Mutex
	rest []byte // the first bytes of an incomplete character
}

func (p *Printable) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text, out := append(p.rest, b...), make([]byte, 0, len(b))
	for len(text) > 0 && utf8.FullRune(text) {
		r, size := utf8.DecodeRune(text)
		out = appendPrintable(out, r, text[:size])
		text = text[size:]
	}
	p.rest = slices.Clone(text)
	if _, err := p.W.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Columns returns the width of the terminal; 0: w is none.
func (p *Printable) Columns() int {
	width, _, err := term.GetSize(Descriptor(p))
	if err != nil {
		return 0
	}
	return width
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

// Verbatim returns the writer behind w if that is no terminal: data for another program must not be changed.
func Verbatim(w io.Writer) io.Writer {
	p, isPrintable := w.(*Printable)
	if !isPrintable {
		return w
	}
	if f, isFile := p.W.(*os.File); isFile && !term.IsTerminal(int(f.Fd())) {
		return f
	}
	return w
}

// printableText escapes a text like printable.
func printableText(text string) string {
	var out strings.Builder
	_, _ = (&Printable{W: &out}).Write([]byte(text))
	return out.String()
}
