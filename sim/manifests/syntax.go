package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"

	"sigs.k8s.io/yaml"

	"synclab/internal/yamldoc"
)

// stars is a redacted value that is not quoted: to YAML it is an alias.
var stars = regexp.MustCompile(`(?m)(: +|[,\[] *|^ *(?:- +)+)(\*\*[^\s,\]}"']*)`)

// parse converts YAML or JSON to JSON. It refuses repeated keys, but not keys that override those of a merge ("<<"), nor
// those of an API server's objects: there, the redacted part makes keys alike.
func parse(text []byte) ([]byte, error) {
	converted, err := yaml.YAMLToJSONStrict(text)
	if err != nil && stars.Match(text) {
		text = stars.ReplaceAll(text, []byte(`$1"$2"`))
		converted, err = yaml.YAMLToJSONStrict(text)
	}
	switch {
	case err == nil:
		return converted, nil
	case serverRow.Match(text):
		return yaml.YAMLToJSON(text)
	case !bytes.Contains(text, []byte("<<")):
		return nil, err
	}
	tree := yamldoc.Parse(text)
	if tree == nil {
		return nil, err
	}
	if keys := tree.Repeated(false); len(keys) > 0 {
		return nil, fmt.Errorf("line %d: key %q already set in map", keys[0].Line, keys[0].Name)
	}
	return yaml.YAMLToJSON(text)
}

// syntaxFault moves the line number from the YAML parser's message to the place of the fault. The parser counts lines
// from the start of the document.
func (d *document) syntaxFault(err error) *InputError {
	line, reason := yamldoc.Syntax(d.text, err)
	if line == 0 {
		line = d.firstLine()
	}
	return &InputError{File: d.file, Line: d.above + line, Err: errors.New("not YAML or JSON: " + reason)}
}

// Keys that Kubernetes objects have, and objects of an API server.
var kindRow, serverRow = regexp.MustCompile(`(?m)^[ -]*"?kind"?:`), regexp.MustCompile(`(?m)(?:^|[ {,"])(uid|resourceVersion)"?:`)

// refuseSyntax refuses a text, or leaves it out if it is part of a dump or was found in a folder and has no objects.
func (m *manifests) refuseSyntax(d *document, err error) {
	at := &fragment{document: d, dumped: serverRow.Match(d.text)}
	if d.found && !kindRow.Match(d.text) {
		m.left.add(at, "", "document", "not YAML or JSON")
		return
	}
	m.refuse(at, d.syntaxFault(err))
}
