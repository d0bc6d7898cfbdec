package yamldoc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	// errorLine matches the line in an error of the YAML parser.
	errorLine = regexp.MustCompile(`line (\d+): `)
	// strictField matches what a strict decoder reports besides values of a wrong type.
	strictField = regexp.MustCompile(`^(unknown field|duplicate field) "(.*)"$`)
)

// Syntax returns the line and the words of the YAML parser's error about a text; line 0: unknown.
func Syntax(text []byte, err error) (line int, reason string) {
	reason = strings.Join(strings.Fields(err.Error()), " ")
	if match := errorLine.FindStringSubmatch(reason); match != nil {
		line, _ = strconv.Atoi(match[1])
		reason = strings.Replace(reason, match[0], "", 1)
	}
	for _, prefix := range []string{"error converting YAML to JSON: ", "yaml: ", "unmarshal errors: "} {
		reason = strings.TrimPrefix(reason, prefix)
	}
	switch {
	case strings.Contains(reason, "map key"): // the parser prints the key as a Go value
		reason = "a key of a mapping is not text"
	case strings.Contains(reason, "json:"):
		reason = "a value that JSON does not have"
	}
	if bytes.Contains(text, []byte("{{")) || bytes.Contains(text, []byte("{%")) {
		reason += "; a template must be rendered first, for example with 'helm template'"
	}
	return line, reason
}

// StrictField returns the problem that a strict decoder has with a field, "unknown field" or "duplicate field", and the
// field's path. Both are empty for other errors.
func StrictField(err error) (problem, path string) {
	if match := strictField.FindStringSubmatch(err.Error()); match != nil {
		return match[1], match[2]
	}
	return "", ""
}

// Mismatch is a value that does not fit its type.
type Mismatch struct{ Path, Text string }

// Mismatches returns the values of a JSON text that do not fit a type, in the order of the type's fields.
func Mismatches(text []byte, t reflect.Type) (found []Mismatch) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return nil
	}
	compare(value, t, "", func(path, text string) { found = append(found, Mismatch{path, text}) })
	return found
}

// compare reports each value that does not fit its type, in words of YAML.
func compare(value any, t reflect.Type, path string, report func(path, text string)) {
	if value == nil { // null fits any type
		return
	}
	fits, want := true, ""
	switch {
	case t.Kind() == reflect.Pointer:
		compare(value, t.Elem(), path, report)
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		text, err := json.Marshal(value)
		fits, want = err == nil && json.Unmarshal(text, reflect.New(t).Interface()) == nil, ownForm(t)
	case t.Kind() == reflect.Struct, t.Kind() == reflect.Map:
		var members map[string]any
		if members, fits = value.(map[string]any); fits {
			compareMembers(members, t, path, report)
		}
		want = "a mapping"
	case t.Kind() == reflect.Slice:
		items, isList := value.([]any)
		for i, item := range items {
			compare(item, t.Elem(), Element(path, i), report)
		}
		fits, want = isList || t.Elem().Kind() == reflect.Uint8, "a list" // bytes are text in base64
	default:
		fits, want = fitsScalar(value, t)
	}
	if !fits {
		report(path, fmt.Sprintf("is %s: want %s", describe(value), want))
	}
}

// compareMembers compares the members of a mapping with the fields of a struct that have their names, or with the
// elements of a map.
func compareMembers(members map[string]any, t reflect.Type, path string, report func(path, text string)) {
	if t.Kind() == reflect.Map {
		for _, key := range slices.Sorted(maps.Keys(members)) {
			compare(members[key], t.Elem(), Join(path, key), report)
		}
		return
	}
	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" && (field.Anonymous || options == "inline") {
			compare(members, field.Type, path, report)
		} else if value, there := members[name]; there && name != "" {
			compare(value, field.Type, Join(path, name), report)
		}
	}
}

func fitsScalar(value any, t reflect.Type) (fits bool, want string) {
	var err error
	number, isNumber := value.(json.Number)
	switch t.Kind() {
	case reflect.String:
		_, fits = value.(string)
		return fits, "text, in quotes"
	case reflect.Bool:
		_, fits = value.(bool)
		return fits, "true or false"
	case reflect.Float32, reflect.Float64:
		_, err = strconv.ParseFloat(number.String(), t.Bits())
		want = "a number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		_, err = strconv.ParseUint(number.String(), 10, t.Bits())
		want = "a whole number, 0 or more"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		_, err = strconv.ParseInt(number.String(), 10, t.Bits())
		want = "a whole number"
	default:
		return true, ""
	}
	if errors.Is(err, strconv.ErrRange) {
		want += fmt.Sprintf(", of at most %d bits", t.Bits())
	}
	return isNumber && err == nil, want
}

// ownForm describes a type that has a text form of its own.
func ownForm(t reflect.Type) string {
	switch t.Name() {
	case "IntOrString":
		return "a whole number or text"
	case "Quantity", "QuantityValue":
		return "a quantity such as 500m or 2Gi"
	case "Time", "MicroTime":
		return "a time such as 2026-01-02T15:04:05Z"
	case "Duration", "TimeOrMetaDuration":
		return "a duration with a unit, such as 30s or 1m30s"
	}
	return "another form"
}

// describe names a value, or its kind if it has more than one part.
func describe(value any) string {
	switch value := value.(type) {
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	case bool:
		return strconv.FormatBool(value)
	case json.Number:
		return value.String()
	case string:
		if len(value) <= 40 {
			return "the text " + strconv.Quote(value)
		}
	}
	return "text"
}
