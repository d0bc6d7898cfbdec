package main

import (
	"strings"
	"testing"

	"synclab/cmd/synclab/terminal"
)

// No control characters come through; all printable text does, however writes split it.
func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"plain, 10 µs … 3 ×\tßé 日本 🙂\n": "plain, 10 µs … 3 ×\tßé 日本 🙂\n",
		"\x1b]0;title\a\x1b[2J":         `\u001b]0;title\u0007\u001b[2J`,
		"\x1b]52;c;ZXZpbA==\x1b\\":      `\u001b]52;c;ZXZpbA==\u001b\`,
		"over\rwritten\b\x7f":           `over\u000dwritten\u0008\u007f`,
		"\u009b31m":                     `\u009b31m`,
		"\u202eesrever\u2066":           `\u202eesrever\u2066`,
		"\x9b31m\xff":                   `\x9b31m\xff`,
		"\U000e0001":                    `\udb40\udc01`,
	} {
		for _, piece := range []int{1, 2, 3, len(text)} {
			var out strings.Builder
			p := &terminal.Printable{W: &out}
			for rest := text; rest != ""; {
				n := min(piece, len(rest))
				if wrote, err := p.Write([]byte(rest[:n])); wrote != n || err != nil {
					t.Fatalf("%d, %v", wrote, err)
				}
				rest = rest[n:]
			}
			if out.String() != want {
				t.Errorf("%q in pieces of %d: %q, want %q", text, piece, out.String(), want)
			}
		}
	}
}
