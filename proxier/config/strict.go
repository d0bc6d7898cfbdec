package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
)

// decoder sets Go values from YAML nodes by their JSON tags. The usual way, YAML → JSON → struct, loses the line
// numbers.
type decoder struct {
	file     string
	problems problems
	lines    map[string]int // field path → line
}

// decodeStrict decodes text into cfg and returns the line of each field in the file.
func decodeStrict(file string, text []byte, cfg *v1alpha1.KubeProxyConfiguration) (map[string]int, error) {
	root, err := oneDocument(file, text)
	if err != nil {
		return nil, err
	}
	d := &decoder{file: file, lines: map[string]int{}}
	// For a file of another kind, decoding would only report many unknown fields. So check the kind first.
	d.checkKind(root)
	if len(d.problems) == 0 {
		d.value(root, reflect.ValueOf(cfg).Elem(), "")
	}
	return d.lines, d.problems.orNil()
}

// yamlLine matches the line in a parser error: "yaml: line 3: did not find …".
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// oneDocument parses the file, which must have a single YAML document.
func oneDocument(file string, text []byte) (*yaml.Node, error) {
	syntax := func(err error) error {
		problem := &FieldError{File: file, Reason: err.Error()}
		if m := yamlLine.FindStringSubmatch(problem.Reason); m != nil {
			problem.Line, _ = strconv.Atoi(m[1]) // without a number: 0, unknown
			problem.Reason = strings.TrimPrefix(problem.Reason, m[0])
		}
		return problem
	}
	dec := yaml.NewDecoder(strings.NewReader(string(text)))
	var document, second yaml.Node
	switch err := dec.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, &FieldError{File: file, Reason: "the file is empty; want kind: " + kind}
	case err != nil:
		return nil, syntax(err)
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		return nil, &FieldError{File: file, Line: second.Line, Reason: "the file has a second document; want exactly one"}
	case !errors.Is(err, io.EOF):
		return nil, syntax(err)
	}
	return document.Content[0], nil
}

func (d *decoder) report(n *yaml.Node, field, reason string, args ...any) {
	d.problems = append(d.problems, &FieldError{
		File: d.file, Line: n.Line, Field: field, Reason: fmt.Sprintf(reason, args...)})
}

// checkKind reports a root that is not a KubeProxyConfiguration of the supported version.
func (d *decoder) checkKind(root *yaml.Node) {
	if root.Kind != yaml.MappingNode {
		d.report(root, "", "want an object of kind %s, got %s", kind, describe(root))
		return
	}
	for _, want := range []struct{ field, value string }{{"apiVersion", apiVersion}, {"kind", kind}} {
		switch got := fieldNode(root, want.field); {
		case got == nil:
			d.report(root, want.field, "missing; want %s", want.value)
		case got.Value != want.value:
			d.report(got, want.field, "%q is not known; want %s", got.Value, want.value)
		}
	}
}

// fieldNode returns the value of one field of a mapping; nil: no such field. Keys and values alternate in Content.
func fieldNode(mapping *yaml.Node, field string) *yaml.Node {
	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == field {
			return mapping.Content[i+1]
		}
	}
	return nil
}

// value sets v from n. A null keeps v as it is, so that Default sets it.
func (d *decoder) value(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if path != "" {
		d.lines[path] = n.Line
	}
	if n.Tag == "!!null" {
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if own, ok := v.Addr().Interface().(json.Unmarshaler); ok {
		d.ownSyntax(n, own, path)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.object(n, path, func(key *yaml.Node, path string) (reflect.Value, func()) {
			known := fieldsOf(v)
			if field, ok := known[key.Value]; ok {
				return field, func() {}
			}
			d.report(key, path, "unknown field%s", didYouMean(key.Value, known))
			return reflect.Value{}, nil
		})
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		d.object(n, path, func(key *yaml.Node, _ string) (reflect.Value, func()) {
			element := reflect.New(v.Type().Elem()).Elem()
			return element, func() { v.SetMapIndex(reflect.ValueOf(key.Value), element) }
		})
	case reflect.Slice:
		d.list(n, v, path)
	default:
		d.scalar(n, v, path)
	}
}

// object decodes the fields of n. place returns the destination of a field (the zero Value: none) and a function to
// call afterwards.
func (d *decoder) object(n *yaml.Node, path string, place func(key *yaml.Node, path string) (reflect.Value, func())) {
	if n.Kind != yaml.MappingNode {
		d.report(n, path, "want an object, got %s", describe(n))
		return
	}
	first := map[string]int{}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		field := key.Value
		if path != "" {
			field = path + "." + field
		}
		if line, again := first[key.Value]; again {
			d.report(key, field, "already set on line %d", line)
			continue
		}
		first[key.Value] = key.Line
		if v, after := place(key, field); v.IsValid() {
			d.value(value, v, field)
			after()
		}
	}
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		d.report(n, path, "want a list, got %s", describe(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, element := range n.Content {
		d.value(element, v.Index(i), fmt.Sprintf("%s[%d]", path, i))
	}
}

// scalar sets a string, bool or number. The types must match: kube-proxy also refuses `clusterCIDR: 10`.
func (d *decoder) scalar(n *yaml.Node, v reflect.Value, path string) {
	want := map[reflect.Kind]string{reflect.String: "!!str", reflect.Bool: "!!bool"}[v.Kind()]
	switch {
	case n.Kind != yaml.ScalarNode:
		d.report(n, path, "want %s, got %s", nameOf(v.Kind()), describe(n))
	case want == "!!str" && n.Tag != want:
		d.report(n, path, "want a string, got %s (put it in quotes)", describe(n))
	case n.Decode(v.Addr().Interface()) != nil:
		d.report(n, path, "want %s, got %s", nameOf(v.Kind()), describe(n))
	}
}

// ownSyntax sets a value that implements json.Unmarshaler, such as a duration.
func (d *decoder) ownSyntax(n *yaml.Node, v json.Unmarshaler, path string) {
	var plain any
	err := n.Decode(&plain)
	var text []byte
	if err == nil {
		text, err = json.Marshal(plain)
	}
	if err == nil {
		err = v.UnmarshalJSON(text)
	}
	if err == nil {
		return
	}
	if _, ok := v.(*metav1.Duration); ok {
		d.report(n, path, "want a duration with a unit, such as 30s or 1m30s, got %s", describe(n))
		return
	}
	d.report(n, path, "%v", err)
}

// fieldsOf returns the fields of a struct by JSON name, including fields of inlined structs.
func fieldsOf(v reflect.Value) map[string]reflect.Value {
	fields := map[string]reflect.Value{}
	for i := range v.NumField() {
		name, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		switch {
		case name == "" && strings.Contains(options, "inline"):
			for name, field := range fieldsOf(v.Field(i)) {
				fields[name] = field
			}
		case name != "" && name != "-":
			fields[name] = v.Field(i)
		}
	}
	return fields
}

// didYouMean suggests the known field with a similar name, or lists all known fields.
func didYouMean(got string, known map[string]reflect.Value) string {
	names := make([]string, 0, len(known))
	for name := range known {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if distance(strings.ToLower(got), strings.ToLower(name)) <= 2 {
			return "; did you mean " + name + "?"
		}
	}
	return "; known are " + strings.Join(names, ", ")
}

// distance returns the Levenshtein distance: the number of letters to add, drop or change between a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// describe returns a node's content for an error.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	default:
		return fmt.Sprintf("%q", n.Value)
	}
}

func nameOf(k reflect.Kind) string {
	switch k {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	default: // the integers of this configuration have 32 bits, except verbosity, which is unsigned
		return "a whole number (" + k.String() + ")"
	}
}
