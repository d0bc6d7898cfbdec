package scenarios

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
)

// field is one field of a scenario's structs, as YAML names it.
type field struct {
	name  string
	index int
	typ   reflect.Type
	tag   reflect.StructTag
}

// has reports whether a field is marked: as required (it has no sensible default), or as the size of a step.
func (f field) has(mark string) bool { _, ok := f.tag.Lookup(mark); return ok }

var (
	scenarioType = reflect.TypeFor[Scenario]()
	stepType     = reflect.TypeFor[Step]()
	durationType = reflect.TypeFor[time.Duration]()
)

// fieldsOf lists the fields of a struct in the order of its declaration.
func fieldsOf(t reflect.Type) []field {
	fields := make([]field, 0, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		fields = append(fields, field{name: name, index: i, typ: f.Type, tag: f.Tag})
	}
	return fields
}

func namesOf(t reflect.Type) []string {
	var names []string
	for _, f := range fieldsOf(t) {
		names = append(names, f.name)
	}
	return names
}

func fieldNamed(t reflect.Type, name string) (field, bool) {
	fields := fieldsOf(t)
	i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
	if i < 0 {
		return field{}, false
	}
	return fields[i], true
}

// shorthand lists the structs that may be written as their kind alone: "probe: traversal".
var shorthand = map[reflect.Type]string{
	reflect.TypeFor[Probe](): "kind",
	reflect.TypeFor[Fault](): "kind",
}

// allPaths lists every path that a scenario can have, with N for an index.
var allPaths = sync.OnceValue(func() []string {
	var paths []string
	var walk func(t reflect.Type, path string)
	walk = func(t reflect.Type, path string) {
		switch {
		case t.Kind() == reflect.Pointer:
			walk(t.Elem(), path)
		case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
			walk(t.Elem(), join(path, "N"))
		case t.Kind() == reflect.Struct:
			for _, f := range fieldsOf(t) {
				walk(f.typ, join(path, f.name))
			}
		default:
			paths = append(paths, path)
		}
	}
	walk(scenarioType, "")
	return paths
})

// unknownField returns the message for a field that t does not have, and the closest field, if one comes close.
func unknownField(t reflect.Type, name string) (text, meant string) {
	names := namesOf(t)
	text = "unknown field"
	if meant = nearest(name, names); meant != "" {
		text += fmt.Sprintf("; did you mean %s?", meant)
	} else if elsewhere := pathsTo(name); len(elsewhere) > 0 {
		text += "; did you mean " + strings.Join(elsewhere, " or ") + "?"
	}
	if !strings.HasSuffix(text, "?") {
		text += "."
	}
	return text + " Allowed here: " + strings.Join(names, ", "), meant
}

// pathsTo lists up to three paths that end with name, as a hint for a field in the wrong place.
func pathsTo(name string) []string {
	var found []string
	for _, p := range allPaths() {
		if len(found) < 3 && strings.EqualFold(p[strings.LastIndexByte(p, '.')+1:], name) {
			found = append(found, p)
		}
	}
	return found
}

// visit calls see with the path of each single value below v, depth first, in declaration order. Keys of maps come
// sorted.
func visit(v reflect.Value, path string, see func(path string, v reflect.Value)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			visit(v.Elem(), path, see)
		}
	case reflect.Struct:
		for _, f := range fieldsOf(v.Type()) {
			visit(v.Field(f.index), join(path, f.name), see)
		}
	case reflect.Slice:
		for i := range v.Len() {
			visit(v.Index(i), join(path, fmt.Sprint(i)), see)
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			visit(v.MapIndex(k), join(path, k.String()), see)
		}
	default:
		see(path, v)
	}
}
