package manifests

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"synclab/internal/yamldoc"
)

// InputError is one fault of the input, with its place.
type InputError struct {
	File   string // "stdin" for "-"
	Line   int    // of the field, or of the closest object that contains it; 0: the file as a whole
	Object string // "service default/ngx-svc"; empty if the document has no name
	Field  string // "spec.ports[0].port"; empty for the object as a whole
	Err    error
}

func (e *InputError) Error() string { return located(e.File, e.Line, e.Object, e.Field, e.Err.Error()) }

func (e *InputError) Unwrap() error { return e.Err }

// located writes a message with its place. Line 0 is the file as a whole; empty parts are left out.
func located(file string, line int, parts ...string) string {
	if line > 0 {
		file = fmt.Sprintf("%s:%d", file, line)
	}
	parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" })
	return strings.Join(append([]string{file}, parts...), ": ")
}

// document is one YAML or JSON document of a file.
type document struct {
	file  string
	found bool // in a folder or an archive
	text  []byte
	// above is the number of lines in the file before the text.
	above int
	// tree is that of the text, if it has several objects. It is parsed on first use.
	tree *yamldoc.Tree
}

// splitDocuments splits a file at its "---" and "..." lines, and consecutive JSON texts at their ends. Documents
// without content are left out.
func splitDocuments(file inputFile) iter.Seq[*document] {
	return func(yield func(*document) bool) { eachDocument(file, yield) }
}

func eachDocument(file inputFile, yield func(*document) bool) {
	inLog := false
	ends := func(before, row []byte) (rest []byte, isEnd bool) {
		isRemark := bytes.HasPrefix(row, dumpEnd) || bytes.HasPrefix(row, warning) && !yamldoc.HasContent(before)
		if inLog = inLog || bytes.HasPrefix(row, logStart); inLog || isRemark {
			inLog = inLog && !bytes.HasPrefix(row, logEnd)
			return row[len(row)-1:], true // the next document begins after this row
		}
		return yamldoc.Mark(before, row)
	}
	for above, text := range yamldoc.Split(file.text, ends) {
		if !splitJSON(&document{file: file.name, found: file.found, above: above, text: text}, yield) {
			return
		}
	}
}

// kubectl cluster-info dump writes logs of containers between the first two rows.
var logStart, logEnd = []byte("==== START logs for container "), []byte("==== END logs for container ")

// Rows that kubectl writes for people: warnings before a document, if its stderr is in the file too, and the last row of a
// cluster-info dump.
var warning, dumpEnd = []byte("Warning: "), []byte("Cluster info dumped to ")

// splitJSON splits a document of several JSON texts. The YAML parser gets text that is not JSON; it reads most of it
// and reports errors for the rest.
func splitJSON(d *document, yield func(*document) bool) bool {
	rest := *d
	for {
		end := jsonEnd(rest.text)
		if end < 0 || !json.Valid(rest.text[:end]) {
			break
		}
		if !yield(rest.part(0, end)) {
			return false
		}
		rest = *rest.part(end, len(rest.text))
	}
	return !yamldoc.HasContent(rest.text) || yield(&rest)
}

// jsonEnd returns where the JSON object at the start of a text ends; -1 if there is none.
func jsonEnd(text []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth == 0 {
				return i + 1
			}
		case depth == 0 && !bytes.ContainsRune([]byte(" \t\r\n"), rune(c)):
			return -1
		}
	}
	return -1
}

// fragment is one object of a document: all of it, or an item of a List.
type fragment struct {
	document *document
	path     string // "" or "items[3]"
	json     []byte
	// dumped: the object comes from an API server. It may have what the server refuses in new objects, and if it cannot be
	// used, it is left out.
	dumped bool
}

// fault returns the error about a field of the fragment; path may be empty.
func (f *fragment) fault(object, path, text string) *InputError {
	return &InputError{File: f.document.file, Line: f.line(path), Object: object, Field: path, Err: errors.New(text)}
}

// line returns the line of a field in the file. For a missing field it is the line of the innermost part of the path
// that exists.
func (f *fragment) line(path string) int {
	d := f.document
	if path == "" && f.isWhole() {
		return d.above + d.firstLine()
	}
	tree := d.tree
	if tree == nil {
		if tree = yamldoc.Parse(d.text); !f.isWhole() {
			d.tree = cmp.Or(tree, &yamldoc.Tree{}) // for the other items
		}
	}
	line, _ := tree.Line(yamldoc.Join(f.path, path))
	if line == 0 {
		line = d.firstLine()
	}
	return d.above + line
}

// isWhole reports whether the object is the only one in its document.
func (f *fragment) isWhole() bool { return f.path == "" || f.path == onlyItem }

func (d *document) firstLine() int {
	line := 1
	for row := range bytes.Lines(d.text) {
		if yamldoc.HasContent(row) {
			return line
		}
		line++
	}
	return line
}

// isList reports whether a kind is a list of objects.
func isList(kind string) bool { return kind == "List" || strings.HasSuffix(kind, "List") }
