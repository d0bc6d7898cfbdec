package manifests

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	goyaml "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
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
	var tree goyaml.Node
	if err := goyaml.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	if err := repeatedKey(&tree); err != nil {
		return nil, err
	}
	return yaml.YAMLToJSON(text)
}

func repeatedKey(node *goyaml.Node) error {
	seen := map[string]bool{}
	for i, child := range node.Content {
		if node.Kind == goyaml.MappingNode && i%2 == 0 {
			if seen[child.Value] && child.Kind == goyaml.ScalarNode {
				return fmt.Errorf("line %d: key %q already set in map", child.Line, child.Value)
			}
			seen[child.Value] = true
		}
		if err := repeatedKey(child); err != nil {
			return err
		}
	}
	return nil
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

// syntaxFault moves the line number from the YAML parser's message to the place of the fault. The parser counts lines
// from the start of the document.
func (d *document) syntaxFault(err error) *InputError {
	text := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	text = strings.TrimPrefix(text, "yaml: ")
	line := d.firstLine()
	if match := yamlLine.FindStringSubmatch(text); match != nil {
		line, _ = strconv.Atoi(match[1])
		text = strings.Replace(text, match[0], "", 1)
	}
	text = strings.TrimPrefix(strings.Join(strings.Fields(text), " "), "unmarshal errors: ")
	switch {
	case strings.Contains(text, "map key"):
		text = "a key of a mapping is no text"
	case strings.Contains(text, "json:"):
		text = "a value that JSON does not have"
	}
	if bytes.Contains(d.text, []byte("{{")) {
		text += "; a template must be rendered first, for example with 'helm template'"
	}
	return &InputError{File: d.file, Line: d.above + line, Err: fmt.Errorf("not YAML or JSON: %s", text)}
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
