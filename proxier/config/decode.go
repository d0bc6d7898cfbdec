package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// decode sets cfg from the document. unknown are the fields that a strict decoder refuses: unknown ones, and ones that
// are set twice, of which the last counts. kube-proxy goes on without the unknown ones.
func (d *document) decode(cfg *v1alpha1.KubeProxyConfiguration) (unknown []*FieldError, err error) {
	lines := d.lines()
	repeated := d.twice()
	for _, found := range repeated {
		unknown = append(unknown, d.problem(found.line, found.key, "is set twice, the last value counts"))
	}
	strict, err := kjson.UnmarshalStrict(d.json, cfg)
	if err != nil {
		return nil, d.wrongTypes(lines).orNil()
	}
	for _, one := range strict {
		m := strictError.FindStringSubmatch(one.Error())
		if m != nil && (m[1] == "unknown" || len(repeated) == 0) { // of JSON, both report repeated keys
			reason := map[string]string{"unknown": "unknown field", "duplicate": "is set twice, the last value counts"}[m[1]]
			unknown = append(unknown, d.problem(lines[m[2]], m[2], reason))
		}
	}
	return unknown, nil
}

func (d *document) problem(line int, field, reason string) *FieldError {
	return &FieldError{File: d.file, Line: line, Field: field, Reason: reason}
}

var (
	// strictError matches what the strict decoder reports besides wrong types.
	strictError = regexp.MustCompile(`^(unknown|duplicate) field "(.*)"$`)
	// keyTwice matches an error of the YAML parser.
	keyTwice = regexp.MustCompile(`line (\d+): key "(.*)" already set in map`)
	// yamlLine matches the line in an error of the YAML parser.
	yamlLine = regexp.MustCompile(`(?:yaml: |error converting YAML to JSON: )*(?:line (\d+): )?(.*)`)
)

type keyAt struct {
	key  string
	line int
}

// twice returns the keys that the YAML text sets twice in one mapping.
func (d *document) twice() (keys []keyAt) {
	_, err := yaml.YAMLToJSONStrict(d.text)
	if err == nil {
		return nil
	}
	for _, m := range keyTwice.FindAllStringSubmatch(err.Error(), -1) {
		line, _ := strconv.Atoi(m[1])
		keys = append(keys, keyAt{m[2], d.lineOf(line)})
	}
	return keys
}

// syntaxError places an error of the YAML parser.
func (d *document) syntaxError(err error) *FieldError {
	m := yamlLine.FindStringSubmatch(strings.Join(strings.Fields(err.Error()), " "))
	line, _ := strconv.Atoi(m[1])
	reason := m[2]
	switch {
	case bytes.Contains(d.text, []byte("{{")), bytes.Contains(d.text, []byte("{%")):
		reason = "this is a template: render it first"
	case strings.Contains(reason, "invalid map key"): // the parser prints the key as a Go value
		reason = "a key that is not a string"
	}
	return d.problem(d.lineOf(line), "", reason)
}

// wrongTypes returns a problem for each value of a wrong type. The decoder stops at the first and names its Go type, so
// each part of the document is decoded alone until the smallest that fails is found.
func (d *document) wrongTypes(lines map[string]int) (p problems) {
	var root map[string]any
	decoder := json.NewDecoder(bytes.NewReader(d.json))
	decoder.UseNumber()
	if decoder.Decode(&root) != nil {
		return problems{d.problem(0, "", "not an object")}
	}
	var search func(value any, path string, within func(any) any) bool
	search = func(value any, path string, within func(any) any) bool {
		if decodes(within(value)) {
			return false
		}
		inside := false
		switch value := value.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(value)) {
				inside = search(value[key], strings.TrimPrefix(path+"."+key, "."), func(v any) any { return within(map[string]any{key: v}) }) || inside
			}
		case []any:
			for i := range value {
				inside = search(value[i], elementOf(path, i), func(v any) any { return within([]any{v}) }) || inside
			}
		}
		if !inside {
			p = append(p, d.problem(lines[path], path, "want "+wanted(path)+", got "+describe(value)))
		}
		return true
	}
	search(root, "", func(v any) any { return v })
	slices.SortStableFunc(p, func(a, b *FieldError) int { return a.Line - b.Line })
	return p
}

func decodes(value any) bool {
	text, err := json.Marshal(value)
	return err == nil && kjson.UnmarshalCaseSensitivePreserveInts(text, &v1alpha1.KubeProxyConfiguration{}) == nil
}

// wanted describes the values of a field.
func wanted(path string) string {
	t := typeAt(reflect.TypeFor[v1alpha1.KubeProxyConfiguration](), path)
	switch {
	case t == nil:
		return "another value"
	case t == reflect.TypeFor[metav1.Duration](), strings.HasSuffix(path, "flushFrequency"):
		return "a duration with a unit, such as 30s or 1m30s"
	}
	switch t.Kind() {
	case reflect.String:
		return "a string (put it in quotes)"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Map:
		return "an object"
	case reflect.Struct:
		if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
			return "a quantity such as 4Ki"
		}
		return "an object"
	case reflect.Float32:
		return "a number"
	}
	return "a whole number (" + t.Kind().String() + ")" // integers have 32 bits, verbosity is unsigned
}

// typeAt returns the type of the field at a path of JSON names; nil: there is none.
func typeAt(t reflect.Type, path string) reflect.Type {
	for _, name := range strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		switch t.Kind() {
		case reflect.Map, reflect.Slice:
			t = t.Elem()
		case reflect.Struct:
			i := slices.IndexFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool {
				tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				return tag == name
			})
			if i < 0 {
				return nil
			}
			t = reflect.VisibleFields(t)[i].Type
		default:
			return nil
		}
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
	}
	return t
}

// describe returns a value for an error.
func describe(value any) string {
	switch value := value.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case nil:
		return "nothing"
	case string:
		return strconv.Quote(value)
	}
	return fmt.Sprint(value)
}
