package scenarios

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// decoder turns a tree of YAML nodes into a Scenario. It collects all problems instead of stopping at the first.
//
// yaml's own KnownFields would not do. It reports neither paths nor allowed values, takes 5 for a duration of 5 ns,
// and takes 1 for the text "1".
type decoder struct {
	tree *tree
	// where maps each decoded path to its place in the file.
	where map[string]string
	// given lists the scalars that were written, with their decoded values.
	given    []given
	problems Problems
	// broken lists the paths without a usable value. Later checks skip them.
	broken []string
}

type given struct {
	path  string
	value reflect.Value
	zero  bool // when decoded: Fill may have replaced it with a default since
}

func (d *decoder) problem(n *yaml.Node, path, text string) {
	d.problems = append(d.problems, Problem{Where: d.tree.place(n), Path: path, Text: text})
	d.broken = append(d.broken, path)
}

// placeOf returns where the path, or its closest ancestor, was written.
func (d *decoder) placeOf(path string) string {
	for {
		if w, ok := d.where[path]; ok || path == "" {
			return w
		}
		path = parentOf(path)
	}
}

func (d *decoder) decode(n *yaml.Node, path string, v reflect.Value) {
	d.where[path] = d.tree.place(n)
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		d.problem(n, path, "anchors and aliases (& and *) are not supported: write the value out")
		return
	}
	if v.Type() == durationType {
		d.decodeDuration(n, path, v)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.decode(n, path, v.Elem())
	case reflect.Struct:
		d.decodeStruct(n, path, v)
	case reflect.Map:
		d.decodeMap(n, path, v)
	case reflect.Slice:
		d.decodeList(n, path, v)
	default:
		d.decodeScalar(n, path, v)
	}
}

func (d *decoder) decodeStruct(n *yaml.Node, path string, v reflect.Value) {
	t := v.Type()
	if key, ok := shorthand[t]; ok && isText(n) {
		n = &yaml.Node{Kind: yaml.MappingNode, Line: n.Line, Content: []*yaml.Node{
			{Kind: yaml.ScalarNode, Tag: "!!str", Value: key, Line: n.Line}, n,
		}}
	}
	switch {
	case isNull(n) && path != "": // "settle:" with nothing after it
		n = &yaml.Node{Kind: yaml.MappingNode, Line: n.Line}
	case t == stepType && isText(n) && slices.Contains(namesOf(t), n.Value):
		d.problem(n, path, fmt.Sprintf("%s needs a colon: \"- %s:\"", quote(n.Value), n.Value))
		return
	case n.Kind != yaml.MappingNode:
		d.problem(n, path, fmt.Sprintf("%s is not allowed: want a mapping with the fields %s", describe(n), strings.Join(namesOf(t), ", ")))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name, at := key.Value, join(path, key.Value)
		f, ok := fieldNamed(t, name)
		switch {
		case key.Value == "<<":
			d.problem(key, path, "merging (<<) is not supported: write the fields out")
		case key.Kind != yaml.ScalarNode:
			d.problem(key, path, "want the name of a field. Allowed here: "+strings.Join(namesOf(t), ", "))
		case seen[name]:
			d.problem(key, at, "is set twice")
		case !ok:
			text, meant := unknownField(t, name)
			d.problem(key, at, text)
			if t == stepType {
				d.broken = append(d.broken, path)
			} else if meant != "" {
				// The meant field is misspelt, not missing.
				seen[meant] = true
				d.broken = append(d.broken, join(path, meant))
			}
		default:
			d.decode(value, at, v.Field(f.index))
		}
		seen[name] = true
	}
	d.checkPresence(n, path, t, seen)
}

// checkPresence reports missing required fields, and a step that does not have exactly one kind.
func (d *decoder) checkPresence(n *yaml.Node, path string, t reflect.Type, seen map[string]bool) {
	for _, f := range fieldsOf(t) {
		if f.has("required") && !seen[f.name] {
			d.problem(n, join(path, f.name), "is missing, and has no default"+wanted(join(path, f.name), f.typ))
		}
	}
	if t != stepType || slices.Contains(d.broken, path) { // a misspelt kind is reported already
		return
	}
	kinds := slices.DeleteFunc(namesOf(t), func(name string) bool { return !seen[name] })
	switch {
	case len(kinds) > 1:
		d.problem(n, path, fmt.Sprintf("is several steps in one (%s): begin each with a separate dash", strings.Join(kinds, ", ")))
	case len(kinds) == 0:
		d.problem(n, path, "has no kind: want exactly one of "+strings.Join(namesOf(t), ", "))
	}
}

// wanted describes the allowed values of a missing field.
func wanted(path string, t reflect.Type) string {
	r, ok := ruleOf(path)
	switch {
	case !ok:
		return ""
	case r.words != nil:
		return ": want one of " + strings.Join(r.allowedWords(), ", ")
	case r.max != 0:
		return ": want " + r.span(t)
	}
	return ""
}

func (d *decoder) decodeMap(n *yaml.Node, path string, v reflect.Value) {
	keys := mapKeys[path]
	if n.Kind != yaml.MappingNode {
		d.problem(n, path, fmt.Sprintf("%s is not allowed: want a mapping with some of %s", describe(n), strings.Join(keys, ", ")))
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, at := n.Content[i], join(path, n.Content[i].Value)
		switch {
		case key.Kind != yaml.ScalarNode || !slices.Contains(keys, key.Value):
			d.problem(key, at, isOneOf(key.Value, keys))
		case seen[key.Value]:
			d.problem(key, at, "is set twice")
		default:
			value := reflect.New(v.Type().Elem()).Elem()
			d.decode(n.Content[i+1], at, value)
			v.SetMapIndex(reflect.ValueOf(key.Value), value)
		}
		seen[key.Value] = true
	}
}

func (d *decoder) decodeList(n *yaml.Node, path string, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.problem(n, path, describe(n)+" is not allowed: want a list, such as [a, b]")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, element := range n.Content {
		d.decode(element, join(path, fmt.Sprint(i)), v.Index(i))
	}
}

func (d *decoder) decodeScalar(n *yaml.Node, path string, v reflect.Value) {
	if n.Kind != yaml.ScalarNode || isNull(n) {
		d.problem(n, path, describe(n)+" is not allowed: want "+expected(path, v.Type()))
		return
	}
	tag, ok := n.ShortTag(), false
	switch v.Kind() {
	case reflect.String:
		// The values of a sweep have the swept field's type, and are decoded later.
		swept := strings.HasPrefix(path, "sweep.") && strings.Contains(path, ".values.")
		if ok = tag == "!!str" || swept; ok {
			v.SetString(n.Value)
		}
	case reflect.Bool:
		ok = tag == "!!bool" && n.Decode(v.Addr().Interface()) == nil
	case reflect.Int, reflect.Int64, reflect.Uint64:
		ok = tag == "!!int" && n.Decode(v.Addr().Interface()) == nil
	case reflect.Float64:
		ok = (tag == "!!int" || tag == "!!float") && n.Decode(v.Addr().Interface()) == nil &&
			!math.IsNaN(v.Float()) && !math.IsInf(v.Float(), 0)
	}
	if !ok {
		v.SetZero()
		d.problem(n, path, describe(n)+" is not allowed: want "+expected(path, v.Type()))
		return
	}
	d.given = append(d.given, given{path, v, v.IsZero()})
}

func (d *decoder) decodeDuration(n *yaml.Node, path string, v reflect.Value) {
	if n.Kind == yaml.ScalarNode && (n.ShortTag() == "!!int" || n.ShortTag() == "!!float") {
		d.problem(n, path, quote(n.Value)+" has no unit: want "+expected(path, durationType))
		return
	}
	parsed, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		d.problem(n, path, describe(n)+" is not allowed: want "+expected(path, durationType))
		return
	}
	v.SetInt(int64(parsed))
	d.given = append(d.given, given{path, v, parsed == 0})
}

// expected describes the values that a path takes.
func expected(path string, t reflect.Type) string {
	r, _ := ruleOf(path)
	span := ""
	if r.max != 0 {
		span = ", " + r.span(t)
	}
	switch {
	case t == durationType && r.max != 0:
		return "a duration with its unit, such as 500ms, 1s or 10m (" + r.span(t) + ")"
	case r.words != nil:
		return "one of " + strings.Join(r.allowedWords(), ", ")
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number" + span
	case reflect.Uint64:
		return "a whole number, 0 or more"
	case reflect.Float64:
		return "a number" + span
	default:
		return "text (put it in quotes if it looks like something else)"
	}
}

// describe names the kind of a node, or quotes its value.
func describe(n *yaml.Node) string {
	switch {
	case isNull(n):
		return "nothing"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	}
	return quote(n.Value)
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }
func isText(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" }
