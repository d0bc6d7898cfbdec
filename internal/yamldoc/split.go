package yamldoc

import (
	"bytes"
	"iter"
	"regexp"
)

// Split returns the documents of a text that have content, each with the number of lines above it. ends reports whether a
// row ends a document, of which it gets the part so far, and returns what of the row belongs to the next one: Mark, or a
// function that knows more ends.
func Split(text []byte, ends func(before, row []byte) (rest []byte, isEnd bool)) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		begin, above, offset, line := 0, 0, 0, 0
		for row := range bytes.Lines(text) {
			if rest, isEnd := ends(text[begin:offset], row); isEnd {
				if part := text[begin:offset:offset]; HasContent(part) && !yield(above, part) {
					return
				}
				begin, above = offset+len(row)-len(rest), line
			}
			offset += len(row)
			line++
		}
		if part := text[begin:len(text):len(text)]; HasContent(part) {
			yield(above, part)
		}
	}
}

// Mark is for Split: a document ends at a row of "---" or "...". Text after "--- " belongs to the next document.
func Mark(_, row []byte) (rest []byte, isMark bool) {
	for _, mark := range []string{"---", "..."} {
		rest, found := bytes.CutPrefix(row, []byte(mark))
		if found && (len(rest) == 0 || bytes.ContainsAny(rest[:1], " \t\r\n")) {
			return rest, true
		}
	}
	return nil, false
}

// HasContent returns false if a text has only blank lines, comments and directives. The YAML parser refuses directives
// alone, as before the first "---".
func HasContent(text []byte) bool {
	for row := range bytes.Lines(text) {
		if row = bytes.TrimSpace(row); len(row) > 0 && row[0] != '#' && row[0] != '%' {
			return true
		}
	}
	return false
}

// KindRow returns a pattern of the kind of an object in YAML or JSON. A script or a comment that names the kind does not
// match.
func KindRow(kind string) *regexp.Regexp {
	return regexp.MustCompile(`(?m)(?:^|[{,])[ \t]*["']?kind["']?[ \t]*:[ \t]*["']?` + kind + `\b`)
}
