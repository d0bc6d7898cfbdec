package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
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
	// tree is the parsed document with line numbers, if it has several objects. It is parsed on first use.
	tree *yaml.Node
}

// splitDocuments splits a file at its "---" and "..." lines, and consecutive JSON texts at their ends. Documents
// without content are left out.
func splitDocuments(file inputFile) iter.Seq[*document] {
	return func(yield func(*document) bool) { eachDocument(file, yield) }
}

func eachDocument(file inputFile, yield func(*document) bool) {
	text := file.text
	begin, offset, above, line := 0, 0, 0, 0
	flush := func() bool {
		return splitJSON(&document{file: file.name, found: file.found, above: above, text: text[begin:offset:offset]}, yield)
	}
	inLog := false
	for row := range bytes.Lines(text) {
		rest, isMark := documentMark(row)
		isRemark := bytes.HasPrefix(row, dumpEnd) || bytes.HasPrefix(row, warning) && !hasContent(text[begin:offset])
		if inLog = inLog || bytes.HasPrefix(row, logStart); inLog || isRemark {
			inLog = inLog && !bytes.HasPrefix(row, logEnd)
			isMark, rest = true, row[len(row)-1:] // the next document begins after this row
		}
		if isMark {
			if !flush() {
				return
			}
			// Text after "--- " belongs to the document.
			begin, above = offset+len(row)-len(rest), line
		}
		offset += len(row)
		line++
	}
	flush()
}

// kubectl cluster-info dump writes logs of containers between the first two rows.
var logStart, logEnd = []byte("==== START logs for container "), []byte("==== END logs for container ")

// Rows that kubectl writes for people: warnings before a document, if its stderr is in the file too, and the last row of a
// cluster-info dump.
var warning, dumpEnd = []byte("Warning: "), []byte("Cluster info dumped to ")

func documentMark(row []byte) (rest []byte, isMark bool) {
	for _, mark := range []string{"---", "..."} {
		rest, found := bytes.CutPrefix(row, []byte(mark))
		if found && (len(rest) == 0 || bytes.ContainsAny(rest[:1], " \t\r\n")) {
			return rest, true
		}
	}
	return nil, false
}

// splitJSON splits a document of several JSON texts. The YAML parser gets text that is not JSON; it reads most of it
// and reports errors for the rest.
func splitJSON(d *document, yield func(*document) bool) bool {
	if !hasContent(d.text) {
		return true
	}
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
	if hasContent(rest.text) {
		return yield(&rest)
	}
	return true
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

// hasContent returns false if a text has only blank lines, comments and directives.
func hasContent(text []byte) bool {
	for row := range bytes.Lines(text) {
		if row = bytes.TrimSpace(row); len(row) > 0 && row[0] != '#' && row[0] != '%' {
			return true
		}
	}
	return false
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
		tree = &yaml.Node{}
		if err := yaml.Unmarshal(d.text, tree); err != nil || len(tree.Content) == 0 {
			tree = &yaml.Node{Content: []*yaml.Node{{Line: d.firstLine()}}}
		}
		if !f.isWhole() {
			d.tree = tree // for the other items
		}
	}
	node := tree.Content[0]
	line := node.Line
	for _, step := range pathSteps(f.path + "." + path) {
		next, at := child(node, step)
		if next == nil {
			break
		}
		node, line = next, at
	}
	return d.above + line
}

// isWhole reports whether the object is the only one in its document.
func (f *fragment) isWhole() bool { return f.path == "" || f.path == onlyItem }

func (d *document) firstLine() int {
	line := 1
	for row := range bytes.Lines(d.text) {
		if hasContent(row) {
			return line
		}
		line++
	}
	return line
}

var pathStep = regexp.MustCompile(`[^.\[\]]+`)

func pathSteps(path string) []string { return pathStep.FindAllString(path, -1) }

// child returns the member of a mapping or the item of a sequence, and its line.
func child(node *yaml.Node, step string) (*yaml.Node, int) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch node.Kind {
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i], node.Content[i].Line
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == step {
				return node.Content[i+1], node.Content[i].Line
			}
		}
	}
	return nil, 0
}

// isList reports whether a kind is a list of objects.
func isList(kind string) bool { return kind == "List" || strings.HasSuffix(kind, "List") }
