package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"synclab/internal/yamldoc"
)

// document is one YAML or JSON document of a file, or a text in one, as a ConfigMap has it.
type document struct {
	file  string
	text  []byte
	above int // lines of the file before the text; below 0: unknown
	json  []byte
	tree  func() *yamldoc.Tree
	head
}

// head is what decides how to read the rest.
type head struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Data       map[string]string `json:"data"`
	Items      []json.RawMessage `json:"items"`
}

// find returns the only KubeProxyConfiguration of a text, and the kinds of what else the text has. A file may have more
// documents, as kubeadm's has, or may be the ConfigMap of a cluster, or a list of such objects.
func find(file string, text []byte) (found *document, others []string, err error) {
	var all []*document
	pending, err := split(file, bytes.TrimPrefix(text, []byte("\ufeff")), 0) // a byte order mark
	for ; err == nil && len(pending) > 0; pending = pending[1:] {
		d := pending[0]
		var inside []*document
		switch {
		case d.Kind == kind:
			all = append(all, d)
			continue
		case d.Kind == "ConfigMap":
			inside, err = d.configMap()
		case strings.HasSuffix(d.Kind, "List"):
			inside, err = d.items()
		default:
			others = append(others, d.Kind)
			continue
		}
		pending = append(pending, inside...)
	}
	switch {
	case err != nil:
		return nil, nil, err
	case len(all) == 0:
		return nil, nil, &FieldError{File: file, Reason: fmt.Sprintf("no %s is in it%s", kind, seen(others))}
	case len(all) > 1:
		return nil, nil, &FieldError{File: file, Line: all[1].line("kind"), Reason: fmt.Sprintf("a second %s: want one", kind)}
	}
	return all[0], others, nil
}

// seen lists kinds for a message.
func seen(kinds []string) string {
	kinds = slices.Compact(slices.Sorted(slices.Values(kinds)))
	for i := range kinds {
		if kinds[i] == "" {
			kinds[i] = "a document without kind"
		}
	}
	if len(kinds) == 0 {
		return ""
	}
	return ", only " + strings.Join(kinds, ", ")
}

// split returns the documents of a text, without empty ones.
func split(file string, text []byte, above int) (all []*document, err error) {
	for lines, part := range yamldoc.Split(text, yamldoc.Mark) {
		d := &document{file: file, text: part, above: above}
		if above >= 0 {
			d.above += lines
		}
		if err := d.parse(); err != nil {
			return nil, err
		}
		if string(d.json) != "null" {
			all = append(all, d)
		}
	}
	return all, nil
}

// parse converts the text to JSON, as kube-proxy does, and reads its head.
func (d *document) parse() (err error) {
	if d.json = d.text; !json.Valid(d.text) {
		if d.json, err = yaml.YAMLToJSON(d.text); err != nil {
			return d.syntaxError(err)
		}
	}
	d.tree = sync.OnceValue(func() *yamldoc.Tree { return yamldoc.Parse(d.text) })
	if err := kjson.UnmarshalCaseSensitivePreserveInts(d.json, &d.head); err != nil && d.Kind == "" {
		return d.problem(d.lineOf(1), "", "not an object of Kubernetes")
	}
	return nil
}

// kindRow matches the kind of a configuration.
var kindRow = yamldoc.KindRow(kind)

// configMap returns the documents in a ConfigMap's texts, such as config.conf of kubeadm or config of EKS. A text of
// another format, such as a script, has none.
func (d *document) configMap() (all []*document, err error) {
	for _, key := range slices.Sorted(maps.Keys(d.Data)) {
		text := d.Data[key]
		if !kindRow.MatchString(text) {
			continue
		}
		above, name := -1, d.file+", "+key
		if line := d.line(yamldoc.Join("data", key)); line > 0 && d.isBlock(line) {
			above, name = line, d.file // a block of text begins below its key
		}
		inside, err := split(name, []byte(text), above)
		if err != nil {
			return nil, err
		}
		all = append(all, inside...)
	}
	return all, nil
}

// blockKey matches the line of a key whose value is a block of text, with its lines as they are.
var blockKey = regexp.MustCompile(`:\s*\|[-+0-9]*\s*$`)

// isBlock reports whether a line of the file has such a key.
func (d *document) isBlock(line int) bool {
	rows := bytes.Split(d.text, []byte("\n"))
	return line-d.above <= len(rows) && blockKey.Match(rows[line-d.above-1])
}

// items returns the objects of a list, without their lines.
func (d *document) items() (all []*document, err error) {
	for _, item := range d.Items {
		one := &document{file: d.file, text: item, above: -1}
		if err := one.parse(); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// lineOf returns the line in the file of a line of the text; 0: unknown.
func (d *document) lineOf(line int) int {
	if d.above < 0 || line == 0 {
		return 0
	}
	return d.above + line
}

// line returns the line in the file of a field; 0: unknown.
func (d *document) line(path string) int {
	if path == "" || d.above < 0 {
		return 0
	}
	line, found := d.tree().Line(path)
	if !found {
		return 0
	}
	return d.lineOf(line)
}
