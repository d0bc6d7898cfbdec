package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"
)

// InputError is one fault of the input, with its place.
type InputError struct {
	File   string // "stdin" for "-"
	Line   int    // of the field, or of the closest object that contains it
	Object string // "service default/ngx-svc"; empty if the document has no name
	Field  string // "spec.ports[0].port"; empty for the object as a whole
	Err    error
}

func (e *InputError) Error() string {
	parts := []string{fmt.Sprintf("%s:%d", e.File, e.Line)}
	for _, part := range []string{e.Object, e.Field} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(append(parts, e.Err.Error()), ": ")
}

func (e *InputError) Unwrap() error { return e.Err }

type inputFile struct {
	name string
	text []byte
}

// openInputs reads the named files, and directories in lexical order.
func openInputs(paths []string, stdin io.Reader) ([]inputFile, error) {
	if len(paths) == 0 {
		return nil, errors.New("no file, directory or - (stdin) to read objects from")
	}
	var files []inputFile
	left := largestInput
	for i, path := range paths {
		if path != "-" {
			found, err := openPath(path, &left)
			if err != nil {
				return nil, fmt.Errorf("read objects: %w", err)
			}
			files = append(files, found...)
			continue
		}
		if stdin == nil || slices.Index(paths, "-") < i {
			return nil, errors.New("read objects: stdin (-) can be read only once, and must be available")
		}
		text, err := readAll(stdin, "stdin", &left)
		if err != nil {
			return nil, fmt.Errorf("read objects: %w", err)
		}
		files = append(files, inputFile{"stdin", text})
	}
	return files, nil
}

func openPath(path string, left *int64) ([]inputFile, error) {
	stat, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	names := []string{path}
	if stat.IsDir() {
		if names, err = manifestsIn(path); err != nil {
			return nil, err
		}
	}
	var files []inputFile
	for _, name := range names {
		text, err := readFile(name, stat.IsDir(), left)
		if err != nil {
			return nil, err
		}
		files = append(files, inputFile{name, text})
	}
	return files, nil
}

// readFile reads a file. A file of a folder must be regular: it is opened without waiting for a writer.
func readFile(name string, regular bool, left *int64) ([]byte, error) {
	flags := os.O_RDONLY
	if regular {
		flags |= unix.O_NONBLOCK
	}
	f, err := os.OpenFile(name, flags, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	stat, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if regular && !stat.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", name)
	}
	return readAll(f, name, left)
}

// largestInput is the size in bytes of the largest input that is read, all files together: 200,000 Services of 10
// endpoints, as JSON.
var largestInput int64 = 1 << 30

// readAll reads a file and subtracts its size from left, the bytes that may still be read.
func readAll(r io.Reader, name string, left *int64) ([]byte, error) {
	var text bytes.Buffer
	if f, isFile := r.(*os.File); isFile {
		if stat, err := f.Stat(); err == nil && stat.Mode().IsRegular() {
			if stat.Size() > *left {
				return nil, tooLarge(name)
			}
			text.Grow(int(stat.Size()) + bytes.MinRead)
		}
	}
	if _, err := text.ReadFrom(io.LimitReader(r, *left+1)); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if *left -= int64(text.Len()); *left < 0 {
		return nil, tooLarge(name)
	}
	return text.Bytes(), nil
}

func tooLarge(name string) error {
	return fmt.Errorf("%s: more than %d MiB of input: leave out what is neither Service, EndpointSlice nor Node", name, largestInput>>20)
}

func manifestsIn(directory string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch filepath.Ext(path) {
		case ".yaml", ".yml", ".json":
			if entry.IsDir() {
				return nil
			}
			names = append(names, path)
		}
		return nil
	})
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s: holds no *.yaml, *.yml or *.json", directory)
	}
	return names, err
}

// document is one YAML or JSON document of a file.
type document struct {
	file string
	text []byte
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
	text := bytes.TrimPrefix(file.text, []byte("\ufeff")) // a byte order mark
	begin, offset, above, line := 0, 0, 0, 0
	flush := func() bool {
		return splitJSON(&document{file: file.name, above: above, text: text[begin:offset:offset]}, yield)
	}
	for row := range bytes.Lines(text) {
		if rest, isMark := documentMark(row); isMark {
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

// pathAt returns the path of the JSON value that ends at an offset, or spans it. Type errors name the offset, but not
// the item of a list.
func pathAt(text []byte, offset int64) string {
	decoder := json.NewDecoder(bytes.NewReader(text))
	type level struct {
		list  bool
		index int
		key   string
		isKey bool // the next token of a mapping is a key
	}
	var levels []level
	path := func() string {
		var b strings.Builder
		for _, l := range levels {
			switch {
			case l.list:
				fmt.Fprintf(&b, "[%d]", l.index)
			case b.Len() > 0:
				b.WriteString("." + l.key)
			default:
				b.WriteString(l.key)
			}
		}
		return b.String()
	}
	advance := func() {
		if len(levels) > 0 {
			top := &levels[len(levels)-1]
			top.index, top.isKey = top.index+1, !top.list
		}
	}
	for {
		token, err := decoder.Token()
		if err != nil {
			return ""
		}
		key, isText := token.(string)
		if n := len(levels); isText && n > 0 && levels[n-1].isKey {
			levels[n-1].key, levels[n-1].isKey = key, false
			continue
		}
		if token == json.Delim('}') || token == json.Delim(']') {
			levels = levels[:len(levels)-1]
			if decoder.InputOffset() >= offset {
				return path()
			}
			advance()
			continue
		}
		if decoder.InputOffset() >= offset {
			return path()
		}
		if token == json.Delim('{') || token == json.Delim('[') {
			levels = append(levels, level{list: token == json.Delim('['), isKey: token == json.Delim('{')})
			continue
		}
		advance()
	}
}

// isList reports whether a kind is a list of objects.
func isList(kind string) bool { return kind == "List" || strings.HasSuffix(kind, "List") }
